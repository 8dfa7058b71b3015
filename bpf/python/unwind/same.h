/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_PYTHON_UNWIND_SAME_H
#define GPU_GADGETS_PYTHON_UNWIND_SAME_H

#include "python/unwind/mix.h"

/*
 * same: whether the code object at an address is still the one that was resolved there.
 * The resolved line and symbol of a place in the bytecode are valid as long as it is.
 */

#define PY_CHECK_MAX_AT 0xffff
/* Events for which a place skips python_witness() after that was of no use. */
#define PY_UNWITNESSED 15
/* Number of events after which a place is compared even if python_owned() vouches for it. */
#define PY_COMPARE_EVERY 8
/* Number of events for which a dict must not have changed to be searched again at once. */
#define PY_OWNED_LONG 32
/* Words of a code object from co_consts (3.7: too) to the line table, below 3.11. */
#define PY_OLD_CODE_PARTS 10

/* Returns the check of a key whose code, or function, has a number. */
static __always_inline __u64 python_numbered(const struct python_line_key *k, __u32 number)
{
	__u64 h = python_mix(python_mix(k->process, k->code), k->position);

	return python_mix(h, number) | 1;
}

/* Reads the compared part of a code object of 3.11 into t->code. 0 or -EFAULT. */
static __noinline long python_read_code(struct python_thread *t, __u64 code)
{
	__u32 from = t->offsets.at[PY_CODE_FIRSTLINE] & 127;

	return user_read_words(&t->fault, (__u64 *)(t->code + from), PY_CODE_CHECK_BYTES / 8,
			       code + from);
}

/*
 * Returns a value that changes if the code object at the key's address is replaced: code
 * objects are freed, and their memory is reused at once. 3.12 and later number them
 * (co_version), which is exact. Before that, or after 2^32 numbers, it covers the
 * object's own words, the stored parts of its name and file, the class's name, and the
 * line table. So a name never belongs to another code object. A line may, if the other
 * one differs only in the middle of a table of more than 248 bytes.
 *
 * The key is mixed in, too, because an LRU entry may be reused while it is read.
 * 0 on a fault, which makes no entry valid.
 */
static __noinline __u64 python_check(struct python_thread *t, const struct python_line_key *k,
				     const struct python_line_value *v)
{
	struct python_offsets *o = &t->offsets;
	__u64 h = python_mix(python_mix(k->process, k->code), k->position);
	__u64 name, file, place, class, table;
	__u32 version = 0, from = o->at[PY_CODE_FIRSTLINE] & 127;

	/* The caller has read the code object. */
	if (o->minor >= 12) {
		if (user_read(&t->fault, &version, sizeof(version),
			      k->code + o->at[PY_CODE_VERSION]))
			return 0;
		t->version = version;
		if (version)
			return python_numbered(k, version);
		if (user_read(&t->fault, t->code + from, PY_CODE_CHECK_BYTES, k->code + from))
			return 0;
	}
	name = PY_CODE(t, o->minor >= 11 ? PY_CODE_QUALNAME : PY_CODE_NAME);
	file = PY_CODE(t, PY_CODE_FILENAME);
	/* Neighbouring frames often share the file, which lives as long as they do. */
	place = file ^ (__u64)v->file_at << 48;
	if (place != t->checked_file) {
		t->checked_hash = python_mix_object(
			PYTHON_GIVE(t, place, file + v->file_at, v->file_last + 1));
		if (!t->checked_hash)
			return 0;
		t->checked_file = place;
	}
	h = python_mix(h, t->checked_hash);
	h = python_mix(h, name);
	h = python_mix(h, PY_CODE(t, PY_CODE_LINETABLE));
	h = python_mix(h, (__u32)PY_CODE(t, PY_CODE_FIRSTLINE));
	if (v->has_self && v->witness) {
		class = python_class_hash(t);
		if (!class)
			return 0;
		h = python_mix(h, class);
	}
	if (o->minor < 11 && !v->has_self && v->witness)
		h = python_mix_qualname(t, h, v->witness, k->code, v->name_bytes);
	else
		h = python_mix_object(PYTHON_GIVE(t, h, name + v->name_at, v->name_last + 1));
	if (!h)
		return 0;
	table = PY_CODE(t, PY_CODE_LINETABLE);
	if (v->table_at > o->at[PY_BYTES_DATA])
		h = python_mix_object(
			PYTHON_GIVE(t, h, table + o->at[PY_BYTES_DATA], PY_CHECK_TABLE_HEAD));
	return h ? python_mix_object(PYTHON_GIVE(t, h, table + v->table_at, v->table_bytes)) : 0;
}

/* Start of the last `most` bytes of an object that ends at `end`. */
static __always_inline __u16 python_tail(__u64 start, __u64 end, __u32 most)
{
	if (end > PY_CHECK_MAX_AT)
		end = PY_CHECK_MAX_AT;
	return end < start + most ? start : end - most;
}

#ifndef USER_OF_OTHER_TASK /* once: see python/other.h */
/* The compared bytes of an object, counted from its beginning. */
struct python_range {
	__u16 at;
	__u8 last; /* less one */
	__u8 head; /* how many bytes of PY_CHECK_QUALNAME the object has */
};
#endif

/*
 * Finds the compared bytes of a str: the last `most` of its characters, and never less
 * than PY_CHECK_TEXT. 0 or -EFAULT.
 */
static __noinline long python_string_tail(struct python_thread *t, __u64 object, __u32 most,
					  struct python_range *r)
{
	struct python_offsets *o = &t->offsets;
	__u64 length, end, state;

	if (user_read(&t->fault, t->bytes, o->string_bytes & 127, object))
		return -EFAULT;
	length = python_word(t->bytes, 127, o->at[PY_STRING_LENGTH]);
	state = python_word(t->bytes, 127, o->at[PY_STRING_STATE]);
	/* Unusual strings are compared by address and length only. */
	end = 0;
	if (state & PY_STRING_IS_COMPACT && length <= 1 << 24) {
		length *= PY_STRING_KIND(state);
		end = o->at[state & PY_STRING_IS_ASCII ? PY_STRING_ASCII : PY_STRING_COMPACT] +
		      length;
	} else {
		length = 0;
	}
	if (length < most)
		most = length < PY_CHECK_TEXT ? PY_CHECK_TEXT : length;
	/* For a short one these include its length and hash, but never its reference count. */
	r->at = python_tail(PY_OBJECT_TYPE, end, most);
	r->last = most - 1;
	r->head = end < PY_CHECK_QUALNAME ? end : PY_CHECK_QUALNAME;
	return 0;
}

static __noinline long python_table_tail(struct python_thread *t, __u64 object,
					 struct python_line_value *v)
{
	__u64 size, start = t->offsets.at[PY_BYTES_DATA];

	if (user_read(&t->fault, &size, sizeof(size), object + t->offsets.at[PY_BYTES_SIZE]))
		return -EFAULT;
	if (size > PY_MAX_TABLE)
		size = 0;
	/* Of a longer one, both ends; of more than 64 KiB, those of the first 64 KiB. */
	v->table_bytes = size <= PY_CHECK_TABLE ? size : PY_CHECK_TABLE_HEAD;
	v->table_at = python_tail(start, start + size, v->table_bytes);
	return 0;
}

/*
 * Returns the version of a dict, which is unique and changes with it (PEP 509); 0:
 * unknown. It is read once per unwind: neighbouring frames often belong to one module or
 * class, and the stack is that of the time at which the unwind began.
 */
static __noinline __u64 python_dict_version(struct python_thread *t, __u64 dict)
{
	struct python_dict_seen *seen = &t->dicts[(dict >> 4 ^ dict >> 9) & (PY_DICTS_SEEN - 1)];
	__u64 head[PY_DICT_VERSION / 8 + 1];

	if (seen->dict == dict)
		return seen->version;
	/* Allocators overwrite the reference count of a freed dict with links. */
	if (user_copy(&t->fault, head, sizeof(head), dict) || !head[0] || head[0] >> 32)
		return 0;
	seen->dict = dict;
	seen->version = head[PY_DICT_VERSION / 8];
	return seen->version;
}

/*
 * Shows with one read, and often none, that the code in t->code is still that of the key,
 * below 3.11, for functions in a class or module: while the dict has the same version, it
 * has the same function, which keeps its name, its code and the code's table. The
 * exception: a program may replace the code of a function (reloaders do). This is almost
 * excluded if the object at the address of the code has the same parts at the same
 * addresses (bytecode, constants, names, file, table and the like). python_same() has it
 * compared in full from time to time, and stops relying on this in a thread in which such
 * a comparison has failed. 0: unknown.
 */
static __noinline __u64 python_owned(struct python_thread *t, const struct python_line_key *k,
				     const struct python_line_value *v)
{
	__u32 parts = (t->offsets.at[PY_CODE_LINETABLE] - (PY_OLD_CODE_PARTS - 1) * 8) & 127;
	__u64 h = python_mix(python_mix(k->process, k->code), k->position);
	__u64 version = python_dict_version(t, v->dict);

	if (!version)
		return 0;
	h = python_mix(python_mix(h, version), (__u32)PY_CODE(t, PY_CODE_FIRSTLINE));
	return python_mix_words(h, (__u64 *)(t->code + parts), PY_OLD_CODE_PARTS) | 1;
}

/*
 * Reads the number of the function of the frame in t->frame: 3.11 numbers functions from
 * their first specialized call on, and clears the number when the code is changed
 * (Objects/funcobject.c, _PyFunction_GetVersionForCurrentState). 0: none, or a fault.
 */
static __always_inline __u32 python_function_version(struct python_thread *t)
{
	__u32 version;

	if (user_copy(&t->fault, &version, sizeof(version),
		      *(__u64 *)(t->frame + PY_FRAME_FUNCTION) + PY_FUNCTION_VERSION))
		return 0;
	return version;
}

/*
 * Shows with one read that the code in t->frame is still that of the key, in 3.11. 0:
 * unknown. The key is mixed in as in python_check().
 */
static __always_inline __u64 python_witness(struct python_thread *t,
					    const struct python_line_key *k)
{
	t->version = python_function_version(t);
	return t->version ? python_numbered(k, t->version) : 0;
}

/* Whether the code object is still the one that v describes. */
static __always_inline bool python_same(struct python_thread *t, struct python_line_key *k,
					struct python_line_value *v)
{
	__u32 faults = t->fault.count;
	bool read_witness = t->offsets.minor == 11 && !v->turns;
	__u64 witness = 0, check;

	if (read_witness) {
		witness = python_witness(t, k);
		if (witness && witness == v->witness)
			return true;
	} else if (t->offsets.minor == 11) {
		v->turns--;
	} else if (v->owned && !t->reloads) {
		__u8 turns = ++v->turns;

		if (turns == PY_OWNED_LONG)
			v->long_owned = 1;
		if (v->dict && turns % PY_COMPARE_EVERY) {
			if (python_owned(t, k, v) == v->owned)
				return true;
			/* The dict has changed. One that keeps changing is of no use. */
			if (v->long_owned)
				return false;
			v->dict = 0;
			v->turns = 1;
		} else if (!v->dict && !turns) {
			return false; /* after 255 events, search it again */
		}
	}
	if (t->offsets.minor == 11 && python_read_code(t, k->code))
		check = 0;
	else
		check = python_check(t, k, v);
	if (!check) {
		/* The compared bytes may be outside of the object that is there now. */
		t->fault.count = faults;
		return false;
	}
	if (check != v->check) {
		if (v->dict && python_owned(t, k, v) == v->owned)
			t->reloads = 1;
		return false;
	}
	if (read_witness) {
		/* Functions that are created repeatedly, or called from C only, have none. */
		if (v->witness || !witness)
			v->turns = PY_UNWITNESSED;
		v->witness = witness;
	}
	return true;
}

#endif
