/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOSTILE_H
#define HOSTILE_H

#include <stddef.h>

/* What a mode is given: a copy of the simulated driver, an empty directory, how much. */
struct order {
	const char *driver;
	const char *dir;
	unsigned long count;
};

/* Exits with a message. */
void fail(const char *what);
/* Prints a line to who started the program. */
void say(const char *line);
/* Waits for a line; exits at the end of the input. */
void wait_for_line(void);
/* Waits for a line, and compares it. */
int line_is(const char *text);
/* Says that the driver is loaded, and waits for a line: it is attached to. */
void wait_until_attached(void);

void make_path(char *to, size_t size, const char *dir, const char *name);
void write_file(const char *path, const void *bytes, size_t size);
/* Maps the first page of a file as code, as a loader does. */
void *map_code(const char *path);
/* Reads a whole file; the caller owns it. */
unsigned char *read_file(const char *path, size_t *size);

void attack_symbols(const struct order *o);
void attack_sparse(const struct order *o);
void attack_special(const struct order *o);
void attack_replaced(const struct order *o);
void attack_mappings(const struct order *o);
void attack_dlopens(const struct order *o);
void attack_threads(const struct order *o);
void attack_forks(const struct order *o);
void attack_execs(const struct order *o);
void attack_searches(const struct order *o);
void attack_hangs(const struct order *o);
void attack_names(const struct order *o);
void attack_stacks(const struct order *o);
void attack_pages(const struct order *o);
void attack_callers(const struct order *o);
void attack_reuse(const struct order *o);
void attack_waits(const struct order *o);

#endif
