/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_PYTHON_UNWIND_SYMBOLS_H
#define GPU_GADGETS_PYTHON_UNWIND_SYMBOLS_H

#include "process/quota.h"
#include "process/seed.h"
#include "python/unwind/method.h"

/*
 * symbols: the names of a code object, as an entry of symbols_by_id.
 */

#ifndef USER_OF_OTHER_TASK /* once: see python/other.h */
struct python_string {
	__u16 bytes;
	__u8 kind;
	__u8 cut;
};
#endif

/*
 * Copies the characters of the str `object`, at most `most` bytes; of a longer one the
 * tail, because the end of a path or a qualname is the most specific. 0 or -EFAULT. A str
 * that cannot be decoded gives no bytes.
 */
static __noinline long python_read_string(struct python_thread *t, __u64 object, char *to,
					  __u32 most, struct python_string *out)
{
	struct python_offsets *o = &t->offsets;
	__u64 length, data, total, skip = 0;
	__u32 state, bytes;

	out->bytes = 0;
	out->kind = 1;
	out->cut = 0;
	if (user_read(&t->fault, t->bytes, o->string_bytes & 127, object))
		return -EFAULT;
	length = python_word(t->bytes, 127, o->at[PY_STRING_LENGTH]);
	state = python_word(t->bytes, 127, o->at[PY_STRING_STATE]);
	out->kind = PY_STRING_KIND(state);
	if (out->kind != 1 && out->kind != 2 && out->kind != 4) {
		out->kind = 1;
		return 0;
	}
	if (length > 1 << 24)
		return 0;
	if (!(state & PY_STRING_IS_COMPACT)) {
		/* A str subclass, or a str made by the old API: its data is separate. */
		if (user_read(&t->fault, &data, sizeof(data), object + o->at[PY_STRING_COMPACT]))
			return -EFAULT;
	} else {
		data = object + o->at[state & PY_STRING_IS_ASCII ? PY_STRING_ASCII : PY_STRING_COMPACT];
	}
	total = length * out->kind;
	if (total > most) {
		skip = total - most;
		total = most;
		out->cut = 1;
	}
	bytes = total;
	if (bytes > most)
		return 0;
	if (bytes && user_read(&t->fault, to, bytes, data + skip))
		return -EFAULT;
	out->bytes = bytes;
	return 0;
}

/* bpf_loop: whether one cell variable is argument 0. */
PYTHON_STEP(python_cell_step, python_context, c)
{
	struct python_thread *t = c->t;
	__u64 argument;

	if (user_read(&t->fault, &argument, sizeof(argument),
		      PY_CODE(t, PY_CODE_CELL2ARG) + i * 8ULL))
		return 1;
	if (argument)
		return 0;
	t->cell = i;
	return 1;
}

/*
 * Returns the type of the first argument of the frame in t->frame, whose code is in
 * t->code, if its name is `self`. 0: none. Below 3.11 only, where code has no qualname.
 * An argument that a closure uses is in a cell.
 */
PYTHON_GLOBAL __u64 python_argument_type(PYTHON_T(__u64 frame))
{
	PYTHON_TAKE_T;
	struct python_context c = { .t = t };
	struct python_offsets *o;
	__u64 object, type = 0, cells;
	__u32 locals;

	if (!t)
		return 0;
	o = &t->offsets;
	if (!(__u32)PY_CODE(t, PY_CODE_ARGCOUNT))
		return 0;
	if (user_read(&t->fault, &object, sizeof(object), frame + o->at[PY_FRAME_LOCALS]))
		return 0;
	if (!object) {
		t->cell = -1;
		if (!PY_CODE(t, PY_CODE_CELL2ARG))
			return 0;
		/* co_cellvars directly precedes co_cell2arg. */
		if (user_read(&t->fault, &cells, sizeof(cells),
			      python_word(t->code, 255, o->at[PY_CODE_CELL2ARG] - 8) +
				      PY_TUPLE_SIZE))
			return 0;
		LOOP(cells < 64 ? cells : 64, python_cell_step, &c);
		if (t->cell < 0)
			return 0;
		locals = PY_CODE(t, PY_CODE_NLOCALS);
		if (user_read(&t->fault, &object, sizeof(object),
			      frame + o->at[PY_FRAME_LOCALS] + ((__u64)locals + t->cell) * 8))
			return 0;
		if (!object || user_read(&t->fault, &object, sizeof(object),
					 object + PY_CELL_CONTENTS))
			return 0;
		if (!object)
			return 0;
	}
	user_read(&t->fault, &type, sizeof(type), object + PY_OBJECT_TYPE);
	return type;
}

/* Writes the class of `self`, if there is one, into t->symbol. 0 or -EFAULT. */
static __noinline long python_class(struct python_thread *t, __u64 type)
{
	struct symbol *s = &t->symbol;
	__u64 name;
	long is, got;

	if (!(__u32)PY_CODE(t, PY_CODE_ARGCOUNT))
		return 0;
	if (user_read(&t->fault, &name, sizeof(name),
		      PY_CODE(t, PY_CODE_VARNAMES) + PY_TUPLE_ITEMS))
		return -EFAULT;
	is = python_is_self(t, name);
	if (is <= 0)
		return is;
	t->has_self = 1;
	if (!type)
		return 0;
	if (user_read(&t->fault, &name, sizeof(name), type + PY_TYPE_NAME))
		return -EFAULT;
	/* Not a str but UTF-8 of unknown length: here the head is kept. */
	got = user_read_text(&t->fault, s->class_name, sizeof(s->class_name), name);
	if (got < 0)
		return -EFAULT;
	if (got > 0)
		s->class_len = got - 1;
	if (got == sizeof(s->class_name))
		s->cut |= 4;
	return 0;
}

static __always_inline __u64 python_symbol_id(const struct symbol *s)
{
	const __u32 *words = (const __u32 *)s;
	__u64 h = hash_seed();

	_Static_assert(sizeof(struct symbol) % 4 == 0, "hashed by words");
	for (__u32 i = 0; i < sizeof(*s) / 4; i++)
		h = mix64(h ^ words[i]);
	return h | 1;
}

/* Takes an entry of symbols_by_id for the process that is read. */
static __always_inline bool python_has_room(struct python_thread *t)
{
#ifdef USER_OF_OTHER_TASK
	struct task_struct *task = (struct task_struct *)t->task;

	return QUOTA_TAKE_OF(task, QUOTA_SYMBOLS, MAX_SYMBOLS);
#else
	return QUOTA_TAKE(QUOTA_SYMBOLS, MAX_SYMBOLS);
#endif
}

/* Returns the key in symbols_by_id of t->symbol, and adds it there; 0: no room. */
PYTHON_GLOBAL __u64 python_symbol_key(void)
{
	struct python_thread *t = python_here(0);
	__u64 id;
	int err; /* see stack_store_of() */

	if (!t)
		return 0;
	id = python_symbol_id(&t->symbol);
	if (bpf_map_lookup_elem(&symbols_by_id, &id))
		return id;
	if (python_has_room(t)) {
		err = bpf_map_update_elem(&symbols_by_id, &id, &t->symbol, BPF_NOEXIST);
		if (!err || err == -EEXIST)
			return id;
	}
	drop(DROP_SYMBOLS_FULL);
	return 0;
}

/*
 * Returns the key in symbols_by_id of the code object in t->code, and adds a new one
 * there. 0: no name, because of a fault or because the map is full.
 */
PYTHON_GLOBAL __u64 python_symbol(void)
{
	struct python_thread *t = python_here(0);
	struct symbol *s;
	struct python_string text;
	__u64 name;

	if (!t)
		return 0;
	s = &t->symbol;
	__builtin_memset(s, 0, sizeof(*s));
	t->has_self = 0;
	s->first_line = PY_CODE(t, PY_CODE_FIRSTLINE);
	s->name_is_qualname = 1;
	if (t->offsets.at[PY_CODE_QUALNAME] != PY_NONE) {
		name = PY_CODE(t, PY_CODE_QUALNAME);
	} else if (t->qualname) {
		name = t->qualname;
	} else {
		name = PY_CODE(t, PY_CODE_NAME);
		s->name_is_qualname = 0;
		if (python_class(t, t->argument_type))
			return 0;
	}
	if (python_read_string(t, name, s->name, sizeof(s->name), &text))
		return 0;
	s->name_len = text.bytes;
	s->name_kind = text.kind;
	s->cut = text.cut;
	if (python_read_string(t, PY_CODE(t, PY_CODE_FILENAME), s->file, sizeof(s->file), &text))
		return 0;
	s->file_len = text.bytes;
	s->file_kind = text.kind;
	s->cut |= text.cut << 1;
	return python_symbol_key();
}

#endif
