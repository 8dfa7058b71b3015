/* SPDX-License-Identifier: Apache-2.0 */

/*
 * libnvrtc.so.12: the run-time compiler. Each program compiles, into an image that the
 * simulated driver loads as any other; it has every requested kernel.
 */
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

enum { SUCCESS = 0, OUT_OF_MEMORY = 1, INVALID_INPUT = 3, INVALID_PROGRAM = 4, NAME_NOT_VALID = 9 };

#define MAX_NAMES 64

struct program {
	unsigned names;
	char *name[MAX_NAMES];
};

static const char image[] = "\177ELF image of the simulated compiler";

EXPORT const char *nvrtcGetErrorString(int r)
{
	return r == SUCCESS ? "NVRTC_SUCCESS" : r == INVALID_PROGRAM ? "NVRTC_ERROR_INVALID_PROGRAM"
					      : "NVRTC_ERROR_INVALID_INPUT";
}

EXPORT int nvrtcVersion(int *major, int *minor)
{
	*major = 12;
	*minor = 4;
	return SUCCESS;
}

EXPORT int nvrtcCreateProgram(struct program **out, const char *source, const char *name, int headers,
			      const char *const *texts, const char *const *names)
{
	(void)name, (void)headers, (void)texts, (void)names;
	if (!out || !source)
		return INVALID_INPUT;
	*out = calloc(1, sizeof(**out));
	return *out ? SUCCESS : OUT_OF_MEMORY;
}

EXPORT int nvrtcDestroyProgram(struct program **p)
{
	if (!p || !*p)
		return INVALID_PROGRAM;
	while ((*p)->names)
		free((*p)->name[--(*p)->names]);
	free(*p);
	*p = NULL;
	return SUCCESS;
}

EXPORT int nvrtcCompileProgram(struct program *p, int count, const char *const *options)
{
	(void)count, (void)options;
	return p ? SUCCESS : INVALID_PROGRAM;
}

/* Names are not mangled: the driver accepts any. */
EXPORT int nvrtcAddNameExpression(struct program *p, const char *expression)
{
	if (!p || p->names == MAX_NAMES)
		return INVALID_PROGRAM;
	p->name[p->names] = strdup(expression);
	return p->name[p->names++] ? SUCCESS : OUT_OF_MEMORY;
}

EXPORT int nvrtcGetLoweredName(struct program *p, const char *expression, const char **out)
{
	for (unsigned i = 0; p && i < p->names; i++)
		if (!strcmp(p->name[i], expression)) {
			*out = p->name[i];
			return SUCCESS;
		}
	return p ? NAME_NOT_VALID : INVALID_PROGRAM;
}

/* A result and its size: an image for both kinds, and an empty log. */
#define RESULT(kind, text)                                      \
	EXPORT int nvrtcGet##kind##Size(struct program *p, size_t *out) \
	{                                                       \
		*out = sizeof(text);                            \
		return p ? SUCCESS : INVALID_PROGRAM;           \
	}                                                       \
	EXPORT int nvrtcGet##kind(struct program *p, char *out) \
	{                                                       \
		memcpy(out, text, sizeof(text));                \
		return p ? SUCCESS : INVALID_PROGRAM;           \
	}
RESULT(CUBIN, image)
RESULT(PTX, image)
RESULT(ProgramLog, "")
