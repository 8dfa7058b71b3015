/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tenant that wants to harm its observer: hostile MODE DRIVER DIR COUNT. It prints "ready",
 * waits for a line, attacks, prints "done", and stays until its input ends. Modes that call the driver
 * print "loaded" first, and wait for another line.
 */
#include "hostile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct {
	const char *name;
	void (*attack)(const struct order *o);
} modes[] = {
	{ "symbols", attack_symbols },	 { "sparse", attack_sparse },
	{ "special", attack_special },	 { "replaced", attack_replaced },
	{ "mappings", attack_mappings }, { "dlopens", attack_dlopens },
	{ "threads", attack_threads },	 { "forks", attack_forks },
	{ "execs", attack_execs },	 { "names", attack_names },
	{ "stacks", attack_stacks },	 { "pages", attack_pages },
	{ "hangs", attack_hangs },	 { "callers", attack_callers },
	{ "waits", attack_waits },	 { "searches", attack_searches },
	{ "reuse", attack_reuse },
};

void fail(const char *what)
{
	fprintf(stderr, "hostile: %s: %s\n", what, strerror(errno));
	exit(1);
}

void say(const char *line)
{
	printf("%s\n", line);
	fflush(stdout);
}

int line_is(const char *text)
{
	char line[64];

	if (!fgets(line, sizeof(line), stdin))
		exit(0);
	line[strcspn(line, "\n")] = 0;
	return !strcmp(line, text);
}

void wait_for_line(void)
{
	line_is("");
}

void wait_until_attached(void)
{
	say("loaded");
	wait_for_line();
}

void make_path(char *to, size_t size, const char *dir, const char *name)
{
	if ((size_t)snprintf(to, size, "%s/%s", dir, name) >= size) {
		errno = ENAMETOOLONG;
		fail(dir);
	}
}

void write_file(const char *path, const void *bytes, size_t size)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0755);
	const char *at = bytes;

	if (fd < 0)
		fail(path);
	while (size > 0) {
		ssize_t n = write(fd, at, size);

		if (n <= 0)
			fail(path);
		at += n;
		size -= (size_t)n;
	}
	close(fd);
}

void *map_code(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	void *at;

	if (fd < 0)
		fail(path);
	at = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
	if (at == MAP_FAILED)
		fail(path);
	close(fd);
	return at;
}

unsigned char *read_file(const char *path, size_t *size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	unsigned char *bytes;
	struct stat st;

	if (fd < 0 || fstat(fd, &st))
		fail(path);
	*size = (size_t)st.st_size;
	bytes = malloc(*size);
	if (!bytes || read(fd, bytes, *size) != st.st_size)
		fail(path);
	close(fd);
	return bytes;
}

int main(int argc, char **argv)
{
	struct order o;

	/* What attacks run. */
	if (argc == 2 && !strcmp(argv[1], "nothing"))
		return 0;
	if (argc == 2 && !strcmp(argv[1], "linger")) {
		sleep(1);
		return 0;
	}
	if (argc < 5) {
		fprintf(stderr, "usage: hostile MODE DRIVER DIR COUNT\n");
		return 2;
	}
	o.driver = argv[2];
	o.dir = argv[3];
	o.count = strtoul(argv[4], NULL, 10);
	for (size_t n = 0; n < sizeof(modes) / sizeof(modes[0]); n++) {
		if (strcmp(modes[n].name, argv[1]))
			continue;
		/* Run by itself with other names, attack_names() is past its wait. */
		if (!getenv("HOSTILE_AGAIN")) {
			say("ready");
			wait_for_line();
		}
		modes[n].attack(&o);
		say("done");
		wait_for_line();
		return 0;
	}
	fprintf(stderr, "hostile: no mode %s\n", argv[1]);
	return 2;
}
