/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_PYTHON_UNWIND_FRAMES_H
#define GPU_GADGETS_PYTHON_UNWIND_FRAMES_H

#ifndef LINUX_5_10
#include "python/unwind/entries.h"
#endif
#include "python/unwind/lines.h"
#include "python/unwind/recent.h"
#include "python/unwind/symbols.h"
#include "python/runtime/thread.h"
#include "python/unwind/window.h"

/*
 * frames: walks the frames of a thread and names each. The cost per frame: reading it,
 * one map lookup if the thread was not at this place before, and the check that the code
 * object is still the one that was resolved.
 */

#ifndef MAX_PYTHON_LINES
#define MAX_PYTHON_LINES 32768
#endif

#ifndef USER_OF_OTHER_TASK /* once: see python/other.h */
/*
 * Place in the bytecode → its symbol and line. Written and read by the programs
 * that unwind. LRU: places that are no longer seen make room. 32768 places of
 * about 130 bytes are 4.2 MB; a large model's training step has a few thousand.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_PYTHON_LINES);
	__type(key, struct python_line_key);
	__type(value, struct python_line_value);
} python_lines_by_place SEC(".maps");
#endif

/*
 * Resolves the place t->key into t->fresh. 0; -EFAULT: the next event tries again.
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
		/* Out of int's range: a wild pointer, so the line is unknown. */
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
	if (t->offsets.minor < 11 && !v->has_self && !v->witness)
		python_module_function(PYTHON_GIVE(t));
	return t->fault.count != faults ? -EFAULT : 0;
}

/*
 * Stores t->fresh, which has been resolved, in the cache, with the check that later shows
 * whether it is still valid. It replaces an entry for other code only: of threads that resolve a new
 * place at once, the first stores it. Separate from python_resolve() to save stack.
 */
static __always_inline void python_keep(struct python_thread *t, bool replaces)
{
	struct python_line_value *v = &t->fresh;
	struct python_line_key *k = &t->key;
	__u32 faults = t->fault.count;

	if (!v->symbol)
		return;
	v->check = python_check(t, k, v);
	if (t->offsets.minor < 11 && !v->has_self && t->method.function) {
		v->dict = t->method.dict;
		v->owned = python_owned(t, k, v);
		/* It may have changed since the function was found. */
		if (python_dict_version(t, v->dict) != t->method.version)
			v->dict = 0;
	}
	if (t->fault.count == faults)
		bpf_map_update_elem(&python_lines_by_place, k, v, replaces ? BPF_ANY : BPF_NOEXIST);
}

#ifndef USER_OF_OTHER_TASK /* once: see python/other.h */
struct python_walk {
	struct python_thread *t;
#ifdef LINUX_5_10
	struct python_walked *s;
#else
	struct stack *s;
#endif
};
#endif

/* Reads the compared part of the code object of a frame below 3.11 into t->code. 0 or -EFAULT. */
static __noinline long python_read_old_code(struct python_thread *t, __u64 code)
{
	return user_read_words(&t->fault, (__u64 *)(t->code + PY_OLD_CODE_FROM),
			       PY_OLD_CODE_BYTES / 8, code + PY_OLD_CODE_FROM);
}

/*
 * Returns the symbol and line of the place t->key of the frame in t->frame: cached or resolved now.
 */
static __always_inline struct python_line_value *
python_look_up(struct python_thread *t, struct python_line_key *key, __u64 frame)
{
	struct python_line_value *v;

	v = bpf_map_lookup_elem(&python_lines_by_place, key);
	if (v && v->has_self) {
		t->argument_type = python_argument_type(PYTHON_GIVE(t, frame));
		if (t->argument_type != v->witness) {
			key->position ^= t->argument_type << 17;
			v = bpf_map_lookup_elem(&python_lines_by_place, key);
		}
	}
	if (v) { /* before the check, which then covers what was read */
		t->fresh.symbol = v->symbol;
		t->fresh.line = v->line;
	}
	if (!v || !python_same(t, key, v)) {
		if (t->offsets.minor < 11 && !t->argument_type)
			t->argument_type = python_argument_type(PYTHON_GIVE(t, frame));
		if (!python_resolve())
			python_keep(t, v);
		else
			t->version = 0; /* python_met() is to keep nothing */
	}
	return &t->fresh;
}

/*
 * Ends the walk at the frame in t->frame if it is the outermost one, as in the previous
 * walk. A thread's own frames are contiguous, and the outermost is first: a frame at the
 * same address, entered from the same place on C's stack, is the outermost again, and its
 * link need not be followed. (If C resumes a generator, its frame may precede it: these
 * frames are then missing for the rest of a tick.)
 */
static __always_inline void python_outermost(struct python_thread *t, __u64 frame)
{
	struct python_proof *p = &t->proof;

	t->last = PY_FRAME(t, PY_FRAME_OWNER) & 0xff ? 0 : frame; /* FRAME_OWNED_BY_THREAD */
	t->last_previous = t->next_frame;
	if (p->frame == frame && p->entry == t->next_frame)
		t->next_frame = 0;
}

/* bpf_loop: one frame. */
PYTHON_STEP(python_frame_step, python_walk, w, .s = &t->walked)
{
	struct python_thread *t = w->t;
	struct python_line_key *key = &t->key;
	struct python_recent *known;
	__u64 frame = t->next_frame;
	__u32 line, n = t->frame_count;

	if (!frame)
		return 1;
	if (python_window_frame(t, frame) && python_read_frame(t, frame)) {
		t->stack_flags |= STACK_PYTHON_INCOMPLETE;
		return 1;
	}
	t->next_frame = PY_FRAME(t, PY_FRAME_PREVIOUS);
	if (frame == t->innermost)
		t->innermost_at = PY_FRAME(t, PY_FRAME_INSTR);
	if (t->offsets.minor >= 12) {
		if ((PY_FRAME(t, PY_FRAME_OWNER) & 0xff) >= PY_OWNER_C) {
#ifndef LINUX_5_10
			python_entered(w->s, n, frame);
#endif
			return 0;
		}
		python_outermost(t, frame);
	}
	if (n >= STACK_PYTHON_FRAMES) {
		t->stack_flags |= STACK_PYTHON_TRUNCATED;
		return 1;
	}
	t->argument_type = 0;
	t->version = 0;
	key->process = t->process ^ t->interpreter_id << 1;
	/* The low bits tag a reference from 3.14 on; objects are aligned anyway. */
	key->code = PY_FRAME(t, PY_FRAME_CODE) & ~7ULL;
	key->position = PY_FRAME(t, PY_FRAME_INSTR);
	if (t->offsets.minor < 11) {
		if (python_read_old_code(t, key->code)) {
			t->stack_flags |= STACK_PYTHON_INCOMPLETE;
			return 1;
		}
		key->position = (__u32)key->position;
	}
	known = python_recall(t, key, frame);
	if (!known)
		known = python_met(t, key, frame, python_look_up(t, key, frame));
	line = known->line;
	/* Below 3.11 a traced frame (sys.settrace) stores its line itself. */
	if (t->offsets.minor < 11 && PY_FRAME(t, PY_FRAME_TRACE) &&
	    (__u32)PY_FRAME(t, PY_FRAME_LINE))
		line = PY_FRAME(t, PY_FRAME_LINE);
	/* Before 6.2 the verifier has lost the bound of n here, whereas the compiler has
	 * not and would drop the mask. */
	t->frame_count = n + 1;
	barrier_var(n);
	n &= STACK_PYTHON_FRAMES - 1;
	w->s->python[n].symbol = known->symbol;
	w->s->python[n].line = line;
	w->s->python[n].flags = 0;
#ifndef LINUX_5_10
	if (t->cframe && python_wants_entries(w->s))
		python_entries_add(t, w->s, n);
#endif
	return 0;
}

/* Every Python frame can have one trampoline frame, and one more marks a cut. */
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
	t->window_to = 0;
	t->apart = 0;
	t->last = 0;
#ifndef LINUX_5_10
	python_entries_begin(t);
#endif
	python_recent_begin(t);
	if (t->proof.tick != t->tick)
		t->proof.frame = 0;
	if (t->offsets.minor < 11)
		for (__u32 i = 0; i < PY_DICTS_SEEN; i++)
			t->dicts[i].dict = 0;
	LOOP(PY_MAX_STEPS, python_frame_step, &w);
#ifdef LINUX_5_10
	bpf_probe_read_kernel(s->python, sizeof(s->python), t->walked.python);
#else
	python_entries_end(t, s, t->frame_count);
#endif
	s->python_count = t->frame_count;
	s->flags |= t->stack_flags;
	if (!t->stack_flags && t->last) {
		t->proof.frame = t->last;
		t->proof.entry = t->last_previous;
	}
}

#endif
