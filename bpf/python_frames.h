/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_PYTHON_FRAMES_H
#define GPU_GADGETS_PYTHON_FRAMES_H

#include "python_lines.h"
#include "python_symbols.h"
#include "python_thread.h"

/*
 * python_frames: walks the frames of a thread and names each. An event costs
 * per frame: the frame, one map lookup, and what proves that the code object
 * there is still the one that was looked up.
 */

#ifndef MAX_PYTHON_LINES
#define MAX_PYTHON_LINES 32768
#endif

/* How much of an object is compared: of names what is kept of them. */
#define PY_CHECK_TABLE 248
#define PY_CHECK_TABLE_HEAD 128
#define PY_CHECK_TEXT 32 /* at least: short strings with their length and hash */
#define PY_CHECK_QUALNAME 96 /* from the object's head on */
#define PY_CHECK_MAX_AT 0xffff
/* Events for which a place does without python_witness() when that was of no use. */
#define PY_UNWITNESSED 15

#ifndef USER_OF_OTHER_TASK /* once: see python_other.h */
/*
 * Place in the bytecode → its symbol and line. Written and read by the programs
 * that unwind. LRU: places that are not met any more make room. 32768 places of
 * some 110 bytes are 3.5 MB; a large model's training step has a few thousand.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_PYTHON_LINES);
	__type(key, struct python_line_key);
	__type(value, struct python_line_value);
} python_lines_by_place SEC(".maps");
#endif

/* One bijective step: words that differ never give the same result by it. */
static __always_inline __u64 python_mix(__u64 h, __u64 word)
{
	return (h ^ word) * 0x9e3779b97f4a7c15ULL;
}

/*
 * Mixes `count` words (even) in. In two chains, since each step of one waits for
 * the multiplication before it. The shifts bring down what differs in the high
 * bits only, which a product never does.
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

/* Mixes `bytes` (at most `most`, a multiple of 8) of user memory in. 0: a fault. */
static __always_inline __u64 python_mix_user(struct python_thread *t, __u64 h, __u64 address,
					     __u32 bytes, __u32 most)
{
	__u64 *words = (__u64 *)t->bytes;

	if (bytes < most)
		for (__u32 i = 0; i < most / 8; i++)
			words[i] = 0;
	if (bytes > most || user_read(&t->fault, words, bytes, address))
		return 0;
	return python_mix_words(h, words, most / 8) | 1;
}

/* As python_mix_user(), up to 256 bytes; most objects are short. */
static __noinline __u64 python_mix_object(struct python_thread *t, __u64 h, __u64 address,
					  __u32 bytes)
{
	if (bytes <= 32)
		return python_mix_user(t, h, address, bytes, 32);
	if (bytes <= 64)
		return python_mix_user(t, h, address, bytes, 64);
	if (bytes <= 128)
		return python_mix_user(t, h, address, bytes, 128);
	return python_mix_user(t, h, address, bytes, 256);
}

/*
 * Mixes the qualname of a function in that has the code of the key: the code object
 * does not refer to it, so it may be gone, or have another by now. 0: it has, or a
 * fault. A string of which the allocators wrote links over the reference count is gone.
 */
static __noinline __u64 python_mix_qualname(struct python_thread *t, __u64 h, __u64 function,
					    __u64 code, __u32 bytes)
{
	__u64 *words = (__u64 *)t->bytes;
	bool later = t->offsets.minor == 10;
	__u64 object;

	/* One read: what lies between func_code and func_qualname, and both. */
	if (user_read(&t->fault, words, later ? 16 : PY_FUNCTION_QUALNAME + 8 - PY_FUNCTION_CODE,
		      function + (later ? PY_FUNCTION_QUALNAME_310 : PY_FUNCTION_CODE)))
		return 0;
	object = later ? words[0] : words[(PY_FUNCTION_QUALNAME - PY_FUNCTION_CODE) / 8];
	if (words[later ? 1 : 0] != code)
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

_Static_assert(PY_FUNCTION_CODE_310 == PY_FUNCTION_QUALNAME_310 + 8, "read at once");

/* Mixes the next PY_CHECK_TEXT - 1 bytes of a C string in. 0: a fault. */
static __noinline __u64 python_mix_text(struct python_thread *t, __u64 h, __u64 address)
{
	__u64 *words = (__u64 *)t->bytes;

	if (user_read_text(&t->fault, words, PY_CHECK_TEXT, address) < 0)
		return 0;
	return python_mix_words(h, words, PY_CHECK_TEXT / 8) | 1;
}

/*
 * The name of t->argument_type, as far as it is kept: types are freed, too. 0: a
 * fault. Neighbours in a stack are often methods of one object.
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

/*
 * Says whether the code object at the key's address is still the same, for code
 * objects are freed and their memory is used again at once. 3.12 and later
 * number them (co_version): exact. Before that, or after 2^32 numbers, compared
 * are the object's own words, its name and file as far as they are kept, the class's
 * name, and the line table: no name is ever one of another code object. A line may
 * be, of one that differs but in the middle of a table of more than 248 bytes.
 *
 * The key goes in, too: an LRU entry may change hands while it is read.
 * 0 on a fault, which makes no entry valid.
 */
static __noinline __u64 python_check(struct python_thread *t, const struct python_line_key *k,
				     const struct python_line_value *v)
{
	struct python_offsets *o = &t->offsets;
	__u64 h = python_mix(python_mix(k->process, k->code), k->position);
	__u64 name, file, place, class, table;
	__u32 version = 0, from;

	if (o->minor >= 12) {
		if (user_read(&t->fault, &version, sizeof(version),
			      k->code + o->at[PY_CODE_VERSION]))
			return 0;
		if (version)
			return python_mix(h, version) | 1;
	}
	/* Below 3.11 the caller has read the code object already. */
	if (o->minor >= 11) {
		from = o->at[PY_CODE_FIRSTLINE] & 127;
		if (user_read(&t->fault, t->code + from, PY_CODE_CHECK_BYTES, k->code + from))
			return 0;
	}
	name = PY_CODE(t, o->minor >= 11 ? PY_CODE_QUALNAME : PY_CODE_NAME);
	file = PY_CODE(t, PY_CODE_FILENAME);
	/* Neighbours in a stack often share the file, which lives as long as they. */
	place = file ^ (__u64)v->file_at << 48;
	if (place != t->checked_file) {
		t->checked_hash = python_mix_object(t, place, file + v->file_at, v->file_last + 1);
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
		h = python_mix_object(t, h, name + v->name_at, v->name_last + 1);
	if (!h)
		return 0;
	table = PY_CODE(t, PY_CODE_LINETABLE);
	if (v->table_at > o->at[PY_BYTES_DATA])
		h = python_mix_object(t, h, table + o->at[PY_BYTES_DATA], PY_CHECK_TABLE_HEAD);
	return h ? python_mix_object(t, h, table + v->table_at, v->table_bytes) : 0;
}

/* Where the last `most` bytes of an object begin that ends at `end`. */
static __always_inline __u16 python_tail(__u64 start, __u64 end, __u32 most)
{
	if (end > PY_CHECK_MAX_AT)
		end = PY_CHECK_MAX_AT;
	return end < start + most ? start : end - most;
}

#ifndef USER_OF_OTHER_TASK /* once: see python_other.h */
/* The compared bytes of an object, counted from its beginning. */
struct python_range {
	__u16 at;
	__u8 last; /* less one */
	__u8 head; /* how many of PY_CHECK_QUALNAME the object has */
};
#endif

/*
 * Which bytes of a str are compared: the last `most` of its characters, and never
 * less than PY_CHECK_TEXT. 0 or -EFAULT.
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
	/* A short one has its length and hash among them, never its reference count. */
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
	/* A longer one at both ends. */
	v->table_bytes = size <= PY_CHECK_TABLE ? size : PY_CHECK_TABLE_HEAD;
	v->table_at = python_tail(start, start + size, v->table_bytes);
	return 0;
}

/*
 * Names the place t->key in t->fresh, and enters it in the cache unless a read
 * failed: a failure must be tried again at the next event. 0 or -EFAULT.
 */
PYTHON_GLOBAL long python_resolve(void)
{
	struct python_thread *t = python_here(0);
	struct python_line_value *v;
	struct python_line_key *k;
	__u32 faults;
	__s32 target;
	__u64 name;
	struct python_range r;
	long line;

	if (!t)
		return -EINVAL;
	v = &t->fresh;
	k = &t->key;
	__builtin_memset(v, 0, sizeof(*v));
	faults = t->fault.count;
	if (user_read(&t->fault, t->code, PY_CODE_BYTES, k->code))
		return -EFAULT;
	if (t->offsets.minor >= 11) {
		/* Out of int's range: a wild pointer; then there is no such line. */
		__s64 bytes = k->position - k->code - t->offsets.at[PY_CODE_INSTR];

		target = bytes < -2 || bytes > 1 << 28 ? 1 << 28 : bytes >> 1;
	} else {
		target = (__s32)PY_FRAME(t, PY_FRAME_INSTR);
		if (t->offsets.minor == 10)
			target *= 2;
	}
	t->qualname = 0;
	if (t->offsets.minor < 11 && python_method_name(PYTHON_GIVE(t)))
		return -EFAULT;
	v->symbol = python_symbol();
	v->has_self = t->has_self;
	v->witness = t->has_self ? t->argument_type : t->qualname ? t->method.function : 0;
	line = python_line(PYTHON_GIVE(t, target));
	if (line > 0)
		v->line = line;
	name = PY_CODE(t, t->offsets.minor >= 11 ? PY_CODE_QUALNAME : PY_CODE_NAME);
	if (t->qualname)
		name = t->qualname;
	if (python_string_tail(t, name, SYMBOL_NAME_BYTES, &r))
		return -EFAULT;
	v->name_at = r.at;
	v->name_last = r.last;
	v->name_bytes = r.head;
	if (python_string_tail(t, PY_CODE(t, PY_CODE_FILENAME), SYMBOL_FILE_BYTES, &r))
		return -EFAULT;
	v->file_at = r.at;
	v->file_last = r.last;
	if (python_table_tail(t, PY_CODE(t, PY_CODE_LINETABLE), v))
		return -EFAULT;
	v->check = python_check(t, k, v);
	if (t->fault.count != faults)
		return -EFAULT;
	if (v->symbol)
		bpf_map_update_elem(&python_lines_by_place, k, v, BPF_ANY);
	return 0;
}

#ifndef USER_OF_OTHER_TASK /* once: see python_other.h */
struct python_walk {
	struct python_thread *t;
#ifdef LINUX_5_10
	struct python_walked *s;
#else
	struct stack *s;
#endif
};
#endif

/*
 * What shows by one read that the code in t->frame is still that of the key: 3.11
 * numbers functions from their first specialized call on, and takes the number away
 * when the code is changed (Objects/funcobject.c, _PyFunction_GetVersionForCurrentState).
 * 0: it does not show. The key goes in as in python_check().
 */
static __always_inline __u64 python_witness(struct python_thread *t,
					    const struct python_line_key *k)
{
	__u32 version;

	if (user_copy(&t->fault, &version, sizeof(version),
		      *(__u64 *)(t->frame + PY_FRAME_FUNCTION) + PY_FUNCTION_VERSION) ||
	    !version)
		return 0;
	return python_mix(python_mix(python_mix(k->process, k->code), k->position), version) | 1;
}

/* Is the code object still the one that v tells of? */
static __always_inline bool python_same(struct python_thread *t, struct python_line_key *k,
					struct python_line_value *v)
{
	__u32 faults = t->fault.count;
	bool asked = t->offsets.minor == 11 && !v->unwitnessed;
	__u64 witness = 0, check;

	if (asked) {
		witness = python_witness(t, k);
		if (witness && witness == v->witness)
			return true;
	} else if (v->unwitnessed) {
		v->unwitnessed--;
	}
	check = python_check(t, k, v);
	if (!check) {
		/* What is compared may lie outside of the object that is there now. */
		t->fault.count = faults;
		return false;
	}
	if (check != v->check)
		return false;
	if (asked) {
		/* Functions that are made anew, or called from C only, have none. */
		if (v->witness || !witness)
			v->unwitnessed = PY_UNWITNESSED;
		v->witness = witness;
	}
	return true;
}

/* bpf_loop: one frame. */
PYTHON_STEP(python_frame_step, python_walk, w, .s = &t->walked)
{
	struct python_thread *t = w->t;
	struct python_line_key *key = &t->key;
	struct python_line_value *v;
	__u64 frame = t->next_frame;
	__u32 line, n = t->frame_count;

	if (!frame)
		return 1;
	if (user_read(&t->fault, t->frame, t->offsets.frame_bytes & 511, frame)) {
		t->stack_flags |= STACK_PYTHON_INCOMPLETE;
		return 1;
	}
	t->next_frame = PY_FRAME(t, PY_FRAME_PREVIOUS);
	if (frame == t->innermost)
		t->innermost_at = PY_FRAME(t, PY_FRAME_INSTR);
	if (t->offsets.minor >= 12 && (PY_FRAME(t, PY_FRAME_OWNER) & 0xff) >= PY_OWNER_C)
		return 0;
	if (n >= STACK_PYTHON_FRAMES) {
		t->stack_flags |= STACK_PYTHON_TRUNCATED;
		return 1;
	}
	t->argument_type = 0;
	key->process = t->process ^ t->interpreter_id << 1;
	/* The low bits tag a reference from 3.14 on; objects are aligned anyway. */
	key->code = PY_FRAME(t, PY_FRAME_CODE) & ~7ULL;
	key->position = PY_FRAME(t, PY_FRAME_INSTR);
	if (t->offsets.minor < 11) {
		if (user_read(&t->fault, t->code + PY_OLD_CODE_FROM, PY_OLD_CODE_BYTES,
			      key->code + PY_OLD_CODE_FROM)) {
			t->stack_flags |= STACK_PYTHON_INCOMPLETE;
			return 1;
		}
		key->position = (__u32)key->position;
	}
	v = bpf_map_lookup_elem(&python_lines_by_place, key);
	if (v && v->has_self) {
		t->argument_type = python_argument_type(PYTHON_GIVE(t, frame));
		if (t->argument_type != v->witness) {
			key->position ^= t->argument_type << 17;
			v = bpf_map_lookup_elem(&python_lines_by_place, key);
		}
	}
	if (!v || !python_same(t, key, v)) {
		if (t->offsets.minor < 11 && !t->argument_type)
			t->argument_type = python_argument_type(PYTHON_GIVE(t, frame));
		python_resolve();
		v = &t->fresh;
	}
	line = v->line;
	/* Below 3.11 a traced frame (sys.settrace) keeps its line itself. */
	if (t->offsets.minor < 11 && PY_FRAME(t, PY_FRAME_TRACE) &&
	    (__u32)PY_FRAME(t, PY_FRAME_LINE))
		line = PY_FRAME(t, PY_FRAME_LINE);
	/* Below 6.2 the verifier has forgotten the bound of n by now, and the
	 * compiler has not: it would leave the mask out. */
	t->frame_count = n + 1;
	barrier_var(n);
	n &= STACK_PYTHON_FRAMES - 1;
	w->s->python[n].symbol = v->symbol;
	w->s->python[n].line = line;
	w->s->python[n].flags = 0;
	return 0;
}

/* Every Python frame can have one trampoline frame, and one more tells of a cut. */
#define PY_MAX_STEPS (2 * STACK_PYTHON_FRAMES + 2)

/* Walks from the innermost `frame` of t into s. Faults are in t->fault. */
static __always_inline void python_walk_frames(struct python_thread *t, struct stack *s,
					       __u64 frame)
{
#ifdef LINUX_5_10
	struct python_walk w = { .t = t, .s = &t->walked };
#else
	struct python_walk w = { .t = t, .s = s };
#endif

	t->next_frame = frame;
	t->innermost = frame;
	t->innermost_at = 0;
	t->frame_count = 0;
	t->stack_flags = 0;
	t->checked_file = 0;
	t->checked_type = 0;
#ifdef LINUX_5_10
	t->line_bytes = 0;
#endif
	LOOP(PY_MAX_STEPS, python_frame_step, &w);
#ifdef LINUX_5_10
	bpf_probe_read_kernel(s->python, sizeof(s->python), t->walked.python);
#endif
	s->python_count = t->frame_count;
	s->flags |= t->stack_flags;
}

#endif
