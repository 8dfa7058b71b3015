/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GPU_KIT_WORKLOAD_H
#define GPU_KIT_WORKLOAD_H

/*
 * workload: makes the calls that the kit measures. It reads a command a line, and
 * answers each with a line of JSON. NVIDIA's libraries are opened at run time, so it
 * needs libc only; a function that is missing is an answer, too.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SUCCESS = 0, OUT_OF_MEMORY = 2, MISSING = -1 }; /* CUresult; MISSING is ours */

struct library {
	void *handle;
	const char *path;
};

extern struct library cuda;
extern int current_device;

/* Finds a function; NULL where the library has none, or is none. */
void *find(struct library *, const char *name);

/* Calls a function of a library by its name, with the types of its arguments. */
#define CALL_IN(library, name, types, ...)                                      \
	({                                                                      \
		int (*f_) types = (int (*) types)find(&(library), name);        \
		f_ ? f_(__VA_ARGS__) : MISSING;                                 \
	})
#define CALL(name, types, ...) CALL_IN(cuda, name, types, __VA_ARGS__)

/* Opens the first of the names that there is; they end with NULL. */
bool open_first(struct library *, const char *const *names);

/* Answers: begin, fields, end. Text is escaped. */
void answer_begin(void);
void answer_number(const char *key, uint64_t);
void answer_real(const char *key, double);
void answer_text(const char *key, const char *);
void answer_result(int);
void answer_end(void);

uint64_t now_ns(void);
double median(double *values, int n);

/* Commands, with their arguments. They answer; false: it is not one of theirs. */
bool memory_command(int argc, char **argv);
bool launch_command(int argc, char **argv);
bool timing_command(int argc, char **argv);
bool runtime_command(int argc, char **argv);
bool nccl_command(int argc, char **argv);
bool nvml_command(int argc, char **argv);

/* A kernel of the module by its name, loaded at its first use; 0 with the error in *r. */
void *kernel(const char *name, int *r);
/* Launches a kernel with one argument: how is plain, ex or coop. */
int launch(const char *how, void *function, uint64_t argument, void *stream);

#define IS(text) (argc > 0 && !strcmp(argv[0], text))
#define ARG(n, otherwise) (argc > (n) ? strtoull(argv[n], NULL, 0) : (otherwise))
#define TEXT(n, otherwise) (argc > (n) ? argv[n] : (otherwise))

#endif
