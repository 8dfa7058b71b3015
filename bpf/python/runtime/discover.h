/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_PYTHON_RUNTIME_DISCOVER_H
#define GPU_GADGETS_PYTHON_RUNTIME_DISCOVER_H

#include "python/runtime/state.h"

/*
 * discover: finds symbols in the current process as its dynamic linker does: auxiliary
 * vector → program headers → r_debug → link_map → GNU hash table. System V gABI, chapter
 * 5; glibc's link.h; the GNU hash section as binutils writes it. File names do not
 * matter: the interpreter is the module that exports _PyRuntime, whether executable or
 * library.
 */
#define PY_MAX_HEADERS 64
#define PY_MAX_DYNAMIC 128
#define PY_MAX_MODULES 1024
#define PY_MAX_CHAIN 32

/* <elf.h>. */
#define PY_AT_PHDR 3
#define PY_AT_PHNUM 5
#define PY_PT_LOAD 1
#define PY_PT_DYNAMIC 2
#define PY_PT_PHDR 6
#define PY_DT_STRTAB 5
#define PY_DT_SYMTAB 6
#define PY_DT_DEBUG 21
#define PY_DT_GNU_HASH 0x6ffffef5

#ifndef USER_OF_OTHER_TASK /* once: see python/other.h */
#define PY_ELF_NAME_BYTES 32
#define PY_ELF_SYMBOL_BYTES 24 /* Elf64_Sym */

struct python_elf_name {
	char name[PY_ELF_NAME_BYTES] __attribute__((aligned(8)));
	__u32 hash; /* h = h * 33 + c from 5381, the GNU hash */
};

enum python_elf_symbol {
	PY_ELF_RUNTIME,	       /* 3.7+ */
	PY_ELF_VERSION,	       /* 3.11+: PY_VERSION_HEX as data */
	PY_ELF_ADD_OBJECT_REF, /* 3.10+ */
	PY_ELF_ADD_TYPE,       /* 3.9+ */
	PY_ELF_POS_ONLY_ARGS,  /* 3.8+ */
	PY_ELF_DEBUG,	       /* of glibc's dynamic linker */
	PY_ELF_SYMBOL_COUNT,
	PY_ELF_SYMBOL_MASK = 7,
};

static const struct python_elf_name python_elf_names[PY_ELF_SYMBOL_MASK + 1] = {
	[PY_ELF_RUNTIME] = { "_PyRuntime", 0x88b5a111 },
	[PY_ELF_VERSION] = { "Py_Version", 0x0433d953 },
	[PY_ELF_ADD_OBJECT_REF] = { "PyModule_AddObjectRef", 0x97b0d610 },
	[PY_ELF_ADD_TYPE] = { "PyModule_AddType", 0xdc2ac8fe },
	[PY_ELF_POS_ONLY_ARGS] = { "PyCode_NewWithPosOnlyArgs", 0xda83218f },
	[PY_ELF_DEBUG] = { "_r_debug", 0x5475103c },
};

struct python_elf_header {
	__u32 type, flags;
	__u64 offset, vaddr, rest[4];
};
#endif

/* Reads AT_PHDR and AT_PHNUM from the kernel's copy of the auxiliary vector. */
static __always_inline void python_read_auxv(struct python_thread *t)
{
	__u64 mm = (__u64)BPF_CORE_READ(python_subject(t), mm);
	__u64 at = mm + bpf_core_field_offset(struct mm_struct, saved_auxv);

	t->search.headers = 0;
	t->search.header_count = 0;
	/* 16 pairs: the kernel writes both before the 12th (fs/binfmt_elf.c). */
	if (!mm || bpf_probe_read_kernel(t->bytes, 256, (void *)at))
		return;
	for (int i = 0; i < 16; i++) {
		__u64 type = *(__u64 *)(t->bytes + i * 16);
		__u64 value = *(__u64 *)(t->bytes + i * 16 + 8);

		if (type == PY_AT_PHDR)
			t->search.headers = value;
		if (type == PY_AT_PHNUM)
			t->search.header_count = value;
	}
}

/* bpf_loop: one program header of the main program. */
PYTHON_STEP(python_header_step, python_context, c)
{
	struct python_search *s = &c->t->search;
	struct python_elf_header h;

	if (user_read(&c->t->fault, &h, sizeof(h), s->at))
		return 1;
	s->at += sizeof(h);
	if (h.type == PY_PT_PHDR) {
		s->bias = s->headers - h.vaddr;
		s->has_bias = 1;
	} else if (h.type == PY_PT_LOAD && !h.offset && !s->has_bias) {
		s->bias = (s->headers & ~0xfffULL) - h.vaddr;
		s->has_bias = 1;
	} else if (h.type == PY_PT_DYNAMIC) {
		s->dynamic = h.vaddr;
	}
	return 0;
}

/* bpf_loop: one entry of a dynamic section. */
PYTHON_STEP(python_dynamic_step, python_context, c)
{
	struct python_search *s = &c->t->search;
	__u64 entry[2];

	if (user_read(&c->t->fault, entry, sizeof(entry), s->at))
		return 1;
	s->at += sizeof(entry);
	switch (entry[0]) {
	case 0:
		return 1;
	case PY_DT_STRTAB:
		s->strings = entry[1];
		break;
	case PY_DT_SYMTAB:
		s->symbols = entry[1];
		break;
	case PY_DT_GNU_HASH:
		s->hash = entry[1];
		break;
	case PY_DT_DEBUG:
		s->debug = entry[1];
		break;
	}
	return 0;
}

PYTHON_GLOBAL long python_read_dynamic(PYTHON_T(__u64 at))
{
	PYTHON_TAKE_T;
	struct python_context c = { .t = t };
	struct python_search *s;

	if (!t)
		return -EINVAL;
	s = &t->search;
	s->at = at;
	s->strings = s->symbols = s->hash = s->debug = 0;
	t->fault.count = 0;
	LOOP(PY_MAX_DYNAMIC, python_dynamic_step, &c);
	if (t->fault.count)
		return -EFAULT;
	/* glibc relocates these in memory, musl and the vDSO do not. */
	if (s->strings < s->base)
		s->strings += s->base;
	if (s->symbols < s->base)
		s->symbols += s->base;
	if (s->hash && s->hash < s->base)
		s->hash += s->base;
	return 0;
}

/* One symbol of a hash chain. 1: it was the last one. */
static __always_inline long python_chain_step(struct python_thread *t)
{
	const struct python_elf_name *want =
		&python_elf_names[t->search.which & PY_ELF_SYMBOL_MASK];
	__u32 word;
	struct {
		__u32 name;
		__u8 info, other;
		__u16 section;
		__u64 value; /* st_size follows */
	} symbol;
	const __u64 *name = (const __u64 *)want->name;
	__u64 differs = 0, *a = (__u64 *)t->bytes;

	if (user_read(&t->fault, &word, sizeof(word), t->search.at))
		return 1;
	if ((word | 1) == (want->hash | 1)) {
		if (user_read(&t->fault, &symbol, sizeof(symbol),
			      t->search.symbols + (__u64)t->search.index * PY_ELF_SYMBOL_BYTES))
			return 1;
		/* The unused tail is compared, too. */
		if (user_read_text(&t->fault, a, PY_ELF_NAME_BYTES,
				   t->search.strings + symbol.name) < 0)
			return 1;
		/* Without a branch for each word: the verifier would follow them all. */
		for (__u32 i = 0; i < PY_ELF_NAME_BYTES / 8; i++)
			differs |= a[i] ^ name[i];
		if (!differs && symbol.section) {
			t->search.value = t->search.base + symbol.value;
			t->search.matched = 1;
			return 1;
		}
	}
	t->search.at += sizeof(word);
	t->search.index++;
	return word & 1;
}

/*
 * Moves t->search to the first symbol of the chain that has this hash. 1; 0: there is none;
 * -EFAULT. Inlined, so that what it reads shares the stack with the rest of the search.
 */
static __always_inline long python_chain_start(struct python_thread *t, __u32 hash)
{
	struct {
		__u32 buckets, first, bloom_words, shift;
	} table;
	struct python_search *s = &t->search;
	__u64 bloom, at = s->hash + sizeof(table);
	__u32 bucket;

	if (user_read(&t->fault, &table, sizeof(table), s->hash))
		return -EFAULT;
	if (!table.buckets || !table.bloom_words)
		return 0;
	if (user_read(&t->fault, &bloom, sizeof(bloom),
		      at + (__u64)((hash / 64) % table.bloom_words) * 8))
		return -EFAULT;
	if (!((bloom >> (hash & 63)) & (bloom >> ((hash >> (table.shift & 31)) & 63)) & 1))
		return 0;
	at += (__u64)table.bloom_words * 8;
	if (user_read(&t->fault, &bucket, sizeof(bucket), at + (__u64)(hash % table.buckets) * 4))
		return -EFAULT;
	if (bucket < table.first)
		return 0;
	s->index = bucket;
	s->at = at + (__u64)table.buckets * 4 + (__u64)(bucket - table.first) * 4;
	return 1;
}

/*
 * Looks `which` up in the module whose tables are in t->search. 1: its address
 * is in t->search.value; 0: the module does not export it; -EFAULT.
 */
PYTHON_GLOBAL long python_find_symbol(PYTHON_T(__u32 which))
{
	PYTHON_TAKE_T;
	struct python_search *s;
	long found;

	if (!t)
		return -EINVAL;
	s = &t->search;
	if (!s->hash)
		return 0;
	t->fault.count = 0;
	s->which = which;
	s->matched = 0;
	found = python_chain_start(t, python_elf_names[which & PY_ELF_SYMBOL_MASK].hash);
	if (found <= 0)
		return found;
	/* A plain loop, because the kernel allows 8 nested calls, including callbacks. */
	for (int i = 0; i < PY_MAX_CHAIN; i++)
		if (python_chain_step(t))
			break;
	if (s->matched)
		return 1;
	return t->fault.count ? -EFAULT : 0;
}

/* Reads the link_map entry s->module and its dynamic section. */
static __always_inline long python_read_module(struct python_thread *t)
{
	struct {
		__u64 base, name, dynamic, next;
	} map;

	t->fault.count = 0;
	if (user_read(&t->fault, &map, sizeof(map), t->search.module))
		return -EFAULT;
	t->search.next = map.next;
	t->search.base = map.base;
	return python_read_dynamic(PYTHON_GIVE(t, map.dynamic));
}

/* bpf_loop: one loaded module. Stops at a fault, to continue here when called again. */
PYTHON_STEP(python_module_step, python_context, c)
{
	struct python_thread *t = c->t;

	if (!t->search.module)
		return 1;
	t->search.found = python_read_module(t);
	if (!t->search.found)
		t->search.found = python_find_symbol(PYTHON_GIVE(t, PY_ELF_RUNTIME));
	if (t->search.found)
		return 1;
	t->search.module = t->search.next;
	return 0;
}

/* Finds the address of the first link_map entry. 1: found; 0: none; -EFAULT. */
PYTHON_GLOBAL long python_first_module(PYTHON_T())
{
	PYTHON_TAKE_T;
	struct python_search *s;
	struct python_context c = { .t = t };
	long err;

	if (!t)
		return -EINVAL;
	s = &t->search;
	python_read_auxv(t);
	if (!s->headers || !s->header_count)
		return 0;
	s->has_bias = 0;
	s->bias = s->dynamic = 0;
	s->at = s->headers;
	t->fault.count = 0;
	LOOP(s->header_count < PY_MAX_HEADERS ? s->header_count : PY_MAX_HEADERS,
	     python_header_step, &c);
	if (t->fault.count)
		return -EFAULT;
	if (!s->dynamic || !s->has_bias)
		return 0;
	s->base = s->bias;
	err = python_read_dynamic(PYTHON_GIVE(t, s->bias + s->dynamic));
	if (err)
		return err;
	if (!s->debug) {
		/* `ld.so PROGRAM`: the kernel has started ld.so, which has no DT_DEBUG,
		 * but owns the structure to which DT_DEBUG of other modules points. */
		err = python_find_symbol(PYTHON_GIVE(t, PY_ELF_DEBUG));
		if (err <= 0)
			return err;
		s->debug = s->value;
	}
	/* struct r_debug { int r_version; struct link_map *r_map; … } */
	if (user_read(&t->fault, &s->module, sizeof(s->module), s->debug + 8))
		return -EFAULT;
	return s->module ? 1 : 0;
}

/*
 * Finds the module that exports _PyRuntime; its address is then in t->search.value. 1:
 * found; 0: none; -EFAULT: call it again once the page has been faulted in; it continues
 * at the module where it stopped.
 */
static __always_inline long python_find_runtime(struct python_thread *t)
{
	struct python_context c = { .t = t };

	if (!t->search.module) {
		long err = python_first_module(PYTHON_GIVE(t));

		if (err <= 0)
			return err;
	}
	t->search.found = 0;
	LOOP(PY_MAX_MODULES, python_module_step, &c);
	return t->search.found;
}

#endif
