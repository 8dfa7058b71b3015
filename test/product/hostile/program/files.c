/* SPDX-License-Identifier: Apache-2.0 */
/* Files in the place of libraries. */
#define _GNU_SOURCE
#include "hostile.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define LIBRARY "libcuda.so.1"
#define CODE_BYTES 8192

/* Functions that the gadget looks for. */
static const char *const wanted[] = { "cuMemAlloc_v2", "cuMemFree_v2", "cuMemAllocManaged",
				      "cuMemAllocPitch_v2" };

/*
 * A library of `count` symbols, of functions, of indirect functions and of data: those that are
 * wanted are in the data, in the middle of an instruction, or an indirect function.
 */
void attack_symbols(const struct order *o)
{
	size_t names = 0, at, strings = o->count * 24 + 1024;
	size_t symbols_at = CODE_BYTES,
	       strings_at = symbols_at + (o->count + 1) * sizeof(Elf64_Sym);
	size_t sections_at = (strings_at + strings + 63) & ~63UL;
	size_t size = sections_at + 3 * sizeof(Elf64_Shdr);
	unsigned char *b = calloc(1, size);
	Elf64_Ehdr *header = (void *)b;
	Elf64_Phdr *program = (void *)(b + sizeof(*header));
	Elf64_Sym *symbol = (void *)(b + symbols_at);
	Elf64_Shdr *section = (void *)(b + sections_at);
	char path[4096];

	if (!b)
		fail("symbols");
	memcpy(header->e_ident, ELFMAG "\x02\x01\x01", 7);
	header->e_type = ET_DYN;
	header->e_machine = EM_X86_64;
	header->e_phoff = sizeof(*header);
	header->e_phentsize = sizeof(*program);
	header->e_phnum = 2;
	header->e_shoff = sections_at;
	header->e_shentsize = sizeof(*section);
	header->e_shnum = 3;
	program[0] = (Elf64_Phdr){
		.p_type = PT_LOAD, .p_flags = PF_R | PF_X, .p_filesz = 4096, .p_memsz = 4096
	};
	program[1] = (Elf64_Phdr){ .p_type = PT_LOAD,
				   .p_flags = PF_R | PF_W,
				   .p_offset = 4096,
				   .p_vaddr = 4096,
				   .p_filesz = 4096,
				   .p_memsz = 4096 };
	memset(b + 512, 0x90, 4096 - 512);
	names = 1;
	for (at = 1; at <= o->count; at++) {
		char name[32];
		const char *text = name;
		unsigned char type = at % 3 == 0   ? STT_GNU_IFUNC
				     : at % 3 == 1 ? STT_FUNC
						   : STT_OBJECT;

		if (at <= sizeof(wanted) / sizeof(wanted[0]))
			text = wanted[at - 1];
		else
			snprintf(name, sizeof(name), "f%lu", at);
		symbol[at].st_name = (Elf64_Word)names;
		symbol[at].st_info = (STB_GLOBAL << 4) | type;
		symbol[at].st_shndx = 1;
		symbol[at].st_size = ~0UL;
		symbol[at].st_value = at % 2 ? 4096 + at % 4096 : 513 + at % 3000;
		strcpy((char *)b + strings_at + names, text);
		names += strlen(text) + 1;
	}
	section[1] = (Elf64_Shdr){ .sh_type = SHT_DYNSYM,
				   .sh_offset = symbols_at,
				   .sh_link = 2,
				   .sh_size = (o->count + 1) * sizeof(Elf64_Sym),
				   .sh_entsize = sizeof(Elf64_Sym) };
	section[2] =
		(Elf64_Shdr){ .sh_type = SHT_STRTAB, .sh_offset = strings_at, .sh_size = names };
	make_path(path, sizeof(path), o->dir, LIBRARY);
	write_file(path, b, size);
	free(b);
	map_code(path);
}

/* A library of `count` GiB, of which the tables are all but its first page. */
void attack_sparse(const struct order *o)
{
	unsigned char page[4096] = { 0 };
	Elf64_Ehdr *header = (void *)page;
	Elf64_Phdr *program = (void *)(page + sizeof(*header));
	unsigned long size = o->count << 30;
	char path[4096];

	memcpy(header->e_ident, ELFMAG "\x02\x01\x01", 7);
	header->e_type = ET_DYN;
	header->e_machine = EM_X86_64;
	header->e_phoff = sizeof(*header);
	header->e_phentsize = sizeof(*program);
	header->e_phnum = 4;
	header->e_shoff = 4096; /* all zeroes: as many sections as its first one has bytes */
	header->e_shentsize = sizeof(Elf64_Shdr);
	program[0] = (Elf64_Phdr){
		.p_type = PT_LOAD, .p_flags = PF_R | PF_X, .p_filesz = size, .p_memsz = size
	};
	program[1] = (Elf64_Phdr){ .p_type = PT_NOTE,
				   .p_flags = PF_R,
				   .p_offset = 8192,
				   .p_vaddr = 8192,
				   .p_filesz = size / 2,
				   .p_memsz = size / 2 };
	program[2] = (Elf64_Phdr){ .p_type = PT_DYNAMIC,
				   .p_flags = PF_R,
				   .p_offset = 2048,
				   .p_vaddr = 2048,
				   .p_filesz = 256,
				   .p_memsz = 256 };
	program[3] = (Elf64_Phdr){ .p_type = PT_GNU_EH_FRAME,
				   .p_flags = PF_R,
				   .p_offset = 8192,
				   .p_vaddr = 8192,
				   .p_filesz = size / 2,
				   .p_memsz = size / 2 };
	Elf64_Dyn *dynamic = (void *)(page + 2048);
	dynamic[0] = (Elf64_Dyn){ DT_SYMTAB, { 1 << 20 } };
	dynamic[1] = (Elf64_Dyn){ DT_STRTAB, { size / 2 } };
	dynamic[2] = (Elf64_Dyn){ DT_STRSZ, { size / 2 } };
	dynamic[3] = (Elf64_Dyn){ DT_GNU_HASH, { size / 4 } };
	make_path(path, sizeof(path), o->dir, LIBRARY);
	write_file(path, page, sizeof(page));
	if (truncate(path, (off_t)size))
		fail(path);
	map_code(path);
}

/* Things that are no files, with the names of libraries, where a loader would look for them. */
void attack_special(const struct order *o)
{
	char dir[4096], path[8192], list[65536] = "";
	unsigned long n;

	for (n = 0; n < o->count; n++) {
		snprintf(dir, sizeof(dir), "%s/%lu", o->dir, n);
		if (mkdir(dir, 0755))
			fail(dir);
		snprintf(path, sizeof(path), "%s/" LIBRARY, dir);
		switch (n % 7) {
		case 0:
			if (mkfifo(path, 0644))
				fail(path);
			break;
		case 1:
			if (symlink("/dev/zero", path))
				fail(path);
			break;
		case 2:
			if (symlink(path, path)) /* to itself */
				fail(path);
			break;
		case 3:
			if (mkdir(path, 0755))
				fail(path);
			break;
		case 4:
			if (symlink("/proc/self/mem", path))
				fail(path);
			break;
		case 5: /* a terminal: opening it could wait */
			if (mknod(path, S_IFCHR | 0644, makedev(5, 0)) && errno != EPERM)
				fail(path);
			break;
		case 6:
			write_file(path, ELFMAG, 4);
			break;
		}
		if (strlen(list) + strlen(dir) + 2 < sizeof(list)) {
			strcat(list, dir);
			strcat(list, ":");
		}
	}
	/* Read when a program starts. */
	setenv("LD_LIBRARY_PATH", list, 1);
	for (n = 0; n < 20; n++) {
		pid_t child = fork();

		if (child == 0) {
			execl("/proc/self/exe", "hostile", "nothing", NULL);
			_exit(1);
		}
		usleep(1000);
	}
}

/* A library that is written over, cut and replaced, `count` times, while it is mapped. */
void attack_replaced(const struct order *o)
{
	char path[4096], next[4096];
	unsigned char *b;
	size_t size;

	b = read_file(o->driver, &size);
	make_path(path, sizeof(path), o->dir, LIBRARY);
	make_path(next, sizeof(next), o->dir, "next");
	write_file(path, b, size);
	for (unsigned long n = 0; n < o->count; n++) {
		void *at = map_code(path);

		switch (n % 4) {
		case 0: /* cut: reads behind the end fail */
			if (truncate(path, (off_t)(n * 977 % size)))
				fail(path);
			break;
		case 1:
			write_file(path, b, size);
			break;
		case 2: /* the same inode, with other bytes */
			b[n * 7919 % size] ^= 0xff;
			write_file(path, b, size);
			break;
		case 3:
			write_file(next, b, size);
			if (rename(next, path))
				fail(path);
			break;
		}
		munmap(at, 4096);
	}
	free(b);
}
