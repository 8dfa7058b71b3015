/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_PYTHON_UNWIND_METHOD_H
#define GPU_GADGETS_PYTHON_UNWIND_METHOD_H

#include "python/runtime/state.h"

/*
 * method: finds the function of a method by its code object, because below 3.11 only
 * functions have a qualname. It is looked up by name in the classes of `self`, as the
 * interpreter does it. The layout of dicts is that of 3.7 – 3.10 (Objects/dict-common.h,
 * dictobject.c: an index table, then the entries).
 */

#define PY_DICT_INDICES 40 /* of PyDictKeysObject */
#define PY_DICT_ENTRY 24
#define PY_DICT_LARGEST (1 << 24)
/* Maximum classes, and places in their dicts, that are read: usually one or two of each.
 * A function that is not found is named after the class of `self`. */
#define PY_METHOD_STEPS 256
#define PY_MAX_BASES 64

/* Whether the str `object` is "self": 1, 0 or -EFAULT. Below 3.11 only: no t variants. */
static __always_inline long python_is_self(struct python_thread *t, __u64 object)
{
	__u32 at = t->offsets.at[PY_STRING_ASCII] & 63;

	if (user_read(&t->fault, t->bytes, at + 4, object))
		return -EFAULT;
	return *(__u64 *)(t->bytes + 16) == 4 && (t->bytes[32] & PY_STRING_IS_ASCII) &&
	       *(__u32 *)(t->bytes + at) == 0x666c6573;
}

/* Whether it is a function with the code that is searched for, or a property of one. */
static __always_inline long python_method_match(struct python_thread *t, __u64 value)
{
	struct python_method *m = &t->method;
	__u32 at = t->offsets.minor == 10 ? PY_FUNCTION_CODE_310 : PY_FUNCTION_CODE;
	__u64 code;

	if (user_read(&t->fault, &code, sizeof(code), value + at))
		return -EFAULT;
	if (code != t->key.code) {
		if (user_read(&t->fault, &value, sizeof(value), value + PY_PROPERTY_GET))
			return -EFAULT;
		/* The object may be of any type, and have no such field. */
		if (user_copy(&t->fault, &code, sizeof(code), value + at) || code != t->key.code)
			return 0;
	}
	m->function = value;
	return 1;
}

/* Starts the lookup in the dict m->dict. 0; 1 if it cannot be read. */
static __always_inline long python_method_dict(struct python_thread *t, struct python_method *m)
{
	m->keys = 0;
	if (user_read(&t->fault, &m->version, sizeof(m->version), m->dict + PY_DICT_VERSION) ||
	    user_read(&t->fault, &m->keys, sizeof(m->keys), m->dict + PY_DICT_KEYS) ||
	    user_read(&t->fault, &m->size, sizeof(m->size), m->keys + PY_DICT_SIZE))
		return 1;
	if (!m->size || m->size > PY_DICT_LARGEST)
		return 1;
	m->at = m->hash & (m->size - 1);
	m->perturb = m->hash;
	return 0;
}

/* bpf_loop: the dict of the next class, or one place in the current one. */
PYTHON_STEP(python_method_step, python_context, c)
{
	struct python_thread *t = c->t;
	struct python_method *m = &t->method;
	/* Key and value. Not on the stack: Linux 6.1 counts it in units of 32 bytes,
	 * and the seven functions from the program to here have 512 in all. */
	__u64 *pair = (__u64 *)t->bytes;
	__u64 place;
	__s32 index;
	__u32 width;

	if (!m->keys) {
		if (m->next >= m->bases)
			return 1;
		if (user_read(&t->fault, &place, sizeof(place),
			      m->mro + PY_TUPLE_ITEMS + m->next * 8ULL) ||
		    user_read(&t->fault, &m->dict, sizeof(m->dict), place + PY_TYPE_DICT))
			return 1;
		m->next++;
		return python_method_dict(t, m);
	}
	width = m->size <= 0xff ? 1 : m->size <= 0xffff ? 2 : 4;
	/* Entries follow the indices: four bytes can be read at the last one, too. */
	if (user_read(&t->fault, &index, sizeof(index),
		      m->keys + PY_DICT_INDICES + m->at * width))
		return 1;
	if (width == 1)
		index = (__s8)index;
	else if (width == 2)
		index = (__s16)index;
	if (index == -1) { /* DKIX_EMPTY: not in this class */
		m->keys = 0;
		return 0;
	}
	if (index >= 0) {
		if (user_read(&t->fault, pair, 16,
			      m->keys + PY_DICT_INDICES + m->size * width +
				      index * (__u64)PY_DICT_ENTRY + 8))
			return 1;
		if (pair[0] == m->name) { /* names are interned */
			m->keys = 0;
			return python_method_match(t, pair[1]) != 0;
		}
	}
	m->perturb >>= 5;
	m->at = (m->at * 5 + m->perturb + 1) & (m->size - 1);
	return 0;
}

/* Whether it is code within a function, which many functions may share. */
static __always_inline bool python_is_nested(struct python_thread *t)
{
	/* co_flags directly precedes co_firstlineno. */
	return (__u32)python_word(t->code, 255, t->offsets.at[PY_CODE_FIRSTLINE] - 4) &
	       PY_CODE_NESTED;
}

/*
 * Sets t->method.function to the function with the code in t->code, which is that of the
 * key, if the module of the frame has it under its name. This is for python_owned(),
 * which is optional, so a fault counts as not found. Returns 0.
 */
PYTHON_GLOBAL long python_module_function(PYTHON_T())
{
	PYTHON_TAKE_T;
	struct python_context c = { .t = t };
	struct python_method *m;
	__u32 faults;

	if (!t)
		return -EINVAL;
	m = &t->method;
	__builtin_memset(m, 0, sizeof(*m));
	if (python_is_nested(t))
		return 0;
	faults = t->fault.count;
	m->name = PY_CODE(t, PY_CODE_NAME);
	m->dict = *(__u64 *)(t->frame + PY_FRAME_GLOBALS);
	if (!user_read(&t->fault, &m->hash, sizeof(m->hash), m->name + PY_STRING_HASH) &&
	    !python_method_dict(t, m))
		LOOP(PY_METHOD_STEPS, python_method_step, &c);
	t->fault.count = faults;
	return 0;
}

/*
 * Sets t->qualname of the code object in t->code, which is that of the key, from the type
 * of its `self`; to 0 if it is not found. Code within a function is skipped: many
 * functions with different qualnames may share it. 0 or -EFAULT.
 */
PYTHON_GLOBAL long python_method_name(PYTHON_T())
{
	PYTHON_TAKE_T;
	struct python_context c = { .t = t };
	struct python_method *m;
	__u64 bases, argument;
	__u32 faults;
	long is;

	if (!t)
		return -EINVAL;
	m = &t->method;
	__builtin_memset(m, 0, sizeof(*m));
	t->qualname = 0;
	if (!t->argument_type || python_is_nested(t))
		return 0;
	if (user_read(&t->fault, &argument, sizeof(argument),
		      PY_CODE(t, PY_CODE_VARNAMES) + PY_TUPLE_ITEMS))
		return -EFAULT;
	is = python_is_self(t, argument);
	if (is <= 0)
		return is;
	m->name = PY_CODE(t, PY_CODE_NAME);
	if (user_read(&t->fault, &m->hash, sizeof(m->hash), m->name + PY_STRING_HASH) ||
	    user_read(&t->fault, &m->mro, sizeof(m->mro), t->argument_type + PY_TYPE_MRO) ||
	    user_read(&t->fault, &bases, sizeof(bases), m->mro + PY_TUPLE_SIZE))
		return -EFAULT;
	m->bases = bases < PY_MAX_BASES ? bases : PY_MAX_BASES;
	faults = t->fault.count;
	LOOP(PY_METHOD_STEPS, python_method_step, &c);
	if (t->fault.count != faults)
		return -EFAULT;
	if (m->function)
		return user_read(&t->fault, &t->qualname, sizeof(t->qualname),
				 m->function + (t->offsets.minor == 10 ?
							PY_FUNCTION_QUALNAME_310 :
							PY_FUNCTION_QUALNAME));
	return 0;
}

#endif
