/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_PYTHON_UNWIND_MIX_H
#define GPU_GADGETS_PYTHON_UNWIND_MIX_H

#include "python/runtime/state.h"

/*
 * mix: hashes the parts of Python's objects by which same.h recognises a code object.
 */

/* Compared bytes of an object: for names, the part that is stored. */
#define PY_CHECK_TABLE 248
#define PY_CHECK_TABLE_HEAD 128
#define PY_CHECK_TEXT 32     /* minimum: short strings with their length and hash */
#define PY_CHECK_QUALNAME 96 /* from the object's head on */

/* One bijective step: different words never give the same result. */
static __always_inline __u64 python_mix(__u64 h, __u64 word)
{
	return (h ^ word) * 0x9e3779b97f4a7c15ULL;
}

/*
 * Mixes in `count` words, an even number. Two chains run in parallel, because each step
 * waits for the previous multiplication. The shifts propagate differences in the high
 * bits, which a product never moves down.
 */
static __always_inline __u64 python_mix_words(__u64 h, const __u64 *words, __u32 count)
{
	__u64 even = h, odd = ~h;

	for (__u32 i = 0; i < count; i += 2) {
		even = python_mix(even, words[i]);
		odd = python_mix(odd, words[i + 1]);
	}
	return python_mix(even ^ even >> 32, odd ^ odd >> 29);
}

/*
 * Mixes in `bytes` (at most `most`, a multiple of 8) of user memory, which is read into
 * `words`. 0: a fault.
 */
static __always_inline __u64 python_mix_user(struct python_thread *t, __u64 h, __u64 address,
					     __u64 bytes, __u32 most, __u64 *words)
{
	for (__u32 i = 0; i < most / 8; i++)
		words[i] = 0;
	if (bytes > most || user_read(&t->fault, words, bytes, address))
		return 0;
	return python_mix_words(h, words, most / 8) | 1;
}

/*
 * As python_mix_user(), up to 256 bytes. Most objects are short, and read onto the stack:
 * see user_read_words(). `bytes` has 64 bits, because the verifier then knows its range
 * after a comparison.
 */
PYTHON_GLOBAL __u64 python_mix_object(PYTHON_T(__u64 h, __u64 address, __u64 bytes))
{
	PYTHON_TAKE_T;
	__u64 few[4], *words;

	if (!t)
		return 0;
	words = (__u64 *)t->bytes;
	if (bytes <= 32)
		return python_mix_user(t, h, address, bytes, 32, few);
	if (bytes <= 64)
		return python_mix_user(t, h, address, bytes, 64, words);
	if (bytes <= 128)
		return python_mix_user(t, h, address, bytes, 128, words);
	return python_mix_user(t, h, address, bytes, 256, words);
}

/*
 * Mixes in the qualname of a function that has the code of the key: the code object does
 * not refer to the function, so it may have been freed or changed. 0: it has, or a fault.
 * A freed function may keep the addresses of its code and its qualname, at which others
 * live by now, and 3.7 to 3.10 leave its reference count at 0. A string is freed if
 * allocators have overwritten its count with links.
 */
static __noinline __u64 python_mix_qualname(struct python_thread *t, __u64 h, __u64 function,
					    __u64 code, __u32 bytes)
{
	__u64 *words = (__u64 *)t->bytes;
	bool later = t->offsets.minor == 10;
	__u64 object;

	/* One read from the reference count to func_code and func_qualname. */
	if (user_read(&t->fault, words, later ? PY_FUNCTION_CODE_310 + 8 : PY_FUNCTION_QUALNAME + 8,
		      function))
		return 0;
	if (!words[0] || words[0] >> 32)
		return 0;
	object = words[(later ? PY_FUNCTION_QUALNAME_310 : PY_FUNCTION_QUALNAME) / 8];
	if (words[(later ? PY_FUNCTION_CODE_310 : PY_FUNCTION_CODE) / 8] != code)
		return 0;
	for (__u32 i = 0; i < PY_CHECK_QUALNAME / 8; i++)
		words[i] = 0;
	if (bytes > PY_CHECK_QUALNAME || user_read(&t->fault, words, bytes, object))
		return 0;
	if (!words[0] || words[0] >> 32)
		return 0;
	words[0] = object;
	return python_mix_words(h, words, PY_CHECK_QUALNAME / 8) | 1;
}

/* Mixes in the next PY_CHECK_TEXT - 1 bytes of a C string. 0: a fault. */
static __noinline __u64 python_mix_text(struct python_thread *t, __u64 h, __u64 address)
{
	__u64 *words = (__u64 *)t->bytes;

	if (user_read_text(&t->fault, words, PY_CHECK_TEXT, address) < 0)
		return 0;
	return python_mix_words(h, words, PY_CHECK_TEXT / 8) | 1;
}

/*
 * Mixes in the stored part of the name of t->argument_type: types are freed, too. 0: a
 * fault. Neighbouring frames are often methods of one object.
 */
static __always_inline __u64 python_class_hash(struct python_thread *t)
{
	__u64 name, h;

	if (t->argument_type != t->checked_type) {
		t->checked_type = 0;
		if (user_read(&t->fault, &name, sizeof(name), t->argument_type + PY_TYPE_NAME))
			return 0;
		h = python_mix_text(t, name, name);
		/* The last byte is the NUL. */
		if (h && t->bytes[PY_CHECK_TEXT - 2])
			h = python_mix_text(t, h, name + PY_CHECK_TEXT - 1);
		if (!h)
			return 0;
		t->checked_class = h;
		t->checked_type = t->argument_type;
	}
	return t->checked_class;
}

#endif
