/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_PYTHON_UNWIND_LINES_H
#define GPU_GADGETS_PYTHON_UNWIND_LINES_H

#include "python/runtime/state.h"

/*
 * lines: the source line of an instruction, from a code object's table.
 * Three encodings:
 *   3.7 – 3.9   co_lnotab: pairs (address increment, signed line increment)
 *               (Objects/lnotab_notes.txt)
 *   3.10        co_linetable: pairs (length, signed line delta), -128: no line
 *               (Objects/lnotab_notes.txt, PEP 626)
 *   3.11 –      co_linetable: location entries (Objects/locations.md, 3.11;
 *               InternalDocs/code_objects.md, 3.14). Only the first byte of an
 *               entry has bit 7 set, so one byte at a time is enough.
 */
#ifdef LINUX_5_10
#define PY_MAX_TABLE 65536 /* the most turns of LOOP */
#define PY_LINE_BUDGET (256 << 10)
#else
/* What TorchInductor generates for a model is one function, of more than 64 KiB from about 400 matrix
 * products on. */
#define PY_MAX_TABLE (1 << 20)
#define PY_LINE_BUDGET (1 << 20) /* 13 ms; with a table that is longest, too, 27 ms */
#endif
/*
 * PY_MAX_TABLE: maximum bytes of a table. Of a longer one no line is known, which is counted.
 * PY_LINE_BUDGET: maximum bytes of all tables that one event begins to read. A table is read once for
 * each place in the code, so that it takes a stack of many new places to get there: it counts as
 * python_unreadable, and the next event continues.
 */

#ifndef USER_OF_OTHER_TASK /* once: see python/other.h */
enum python_line_state {
	PY_LINE_SKIP = 0, /* the rest of the entry is not needed */
	PY_LINE_DELTA = 1,
};
#endif

/* One byte of a location table. 1: the answer is known. */
static __always_inline long python_location_byte(struct python_line_walk *w, __u8 byte)
{
	if (byte & 0x80) {
		__u32 code = (byte >> 3) & 15;

		w->address += (byte & 7) + 1;
		w->covers = w->target < w->address;
		w->kind = PY_LINE_SKIP;
		if (code == 15) {
			/* No location: the line is unknown here. */
			w->line = 0;
		} else if (code >= 13) {
			w->kind = PY_LINE_DELTA;
			w->number = 0;
			w->shift = 0;
			return 0;
		} else {
			if (code >= 10)
				w->computed += code - 10;
			w->line = w->computed;
		}
	} else {
		if (w->kind != PY_LINE_DELTA)
			return 0;
		w->number |= (__u32)(byte & 63) << (w->shift & 31);
		w->shift += 6;
		if (byte & 64)
			return 0;
		/* Sign in the lowest bit. */
		w->computed += w->number & 1 ? -(__s32)(w->number >> 1) : (__s32)(w->number >> 1);
		w->line = w->computed;
		w->kind = PY_LINE_SKIP;
	}
	if (!w->covers)
		return 0;
	w->answer = w->line;
	return 1;
}

/* The second byte of a pair; w->first is the first. 1: the answer is known. */
static __always_inline long python_pair(struct python_line_walk *w, __u8 byte)
{
	__s8 delta = byte;

	if (w->minor >= 10) {
		w->address += w->first;
		if (delta != -128)
			w->computed += delta;
		if (w->target < w->address) {
			w->answer = delta == -128 ? 0 : w->computed;
			return 1;
		}
		return 0;
	}
	w->address += w->first;
	if (w->address > w->target) {
		w->answer = w->computed;
		return 1;
	}
	w->computed += delta;
	return 0;
}

/* bpf_loop: one byte of the table. */
PYTHON_STEP(python_line_step, python_context, c)
{
	struct python_thread *t = c->t;
	struct python_line_walk *w = &t->line;
	__u8 byte;

	if (!(w->at & 255)) {
		__u32 bytes = w->size - w->at;

		if (bytes > 256)
			bytes = 256;
		if (user_read(&t->fault, t->bytes, bytes, w->table + w->at))
			return 1;
	}
	byte = t->bytes[w->at & 255];
	w->at++;
	if (w->minor >= 11)
		return python_location_byte(w, byte);
	if (w->at & 1) {
		w->first = byte;
		return 0;
	}
	return python_pair(w, byte);
}

/*
 * Returns the line at `target` of the code object in t->code: 0 if there is none or the
 * table is damaged, -EFAULT if it is unreadable. `target` is in code units from
 * co_code_adaptive (3.11+) or bytes of co_code. Writes t->bytes.
 */
PYTHON_GLOBAL long python_line(PYTHON_T(__s32 target))
{
	PYTHON_TAKE_T;
	struct python_context c = { .t = t };
	struct python_line_walk *w;
	__u64 table, size;
	__u32 faults;

	if (!t)
		return -EINVAL;
	faults = t->fault.count;
	table = PY_CODE(t, PY_CODE_LINETABLE);
	w = &t->line;
	__builtin_memset(w, 0, sizeof(*w));
	w->target = target;
	w->answer = -1;
	w->minor = t->offsets.minor;
	w->computed = (__u32)PY_CODE(t, PY_CODE_FIRSTLINE);
	/* Before the first instruction. */
	if (target < 0)
		return w->computed;
	if (user_read(&t->fault, &size, sizeof(size), table + t->offsets.at[PY_BYTES_SIZE]))
		return -EFAULT;
	if (size > PY_MAX_TABLE) {
		drop(DROP_PYTHON_LINE);
		return 0;
	}
	if (t->line_bytes > PY_LINE_BUDGET) {
		t->fault.count++;
		t->fault.address = 0; /* no page that may be brought in */
		return -EFAULT;
	}
	w->size = size;
	w->table = table + t->offsets.at[PY_BYTES_DATA];
	LOOP(w->size, python_line_step, &c);
	t->line_bytes += w->at;
	if (t->fault.count != faults)
		return -EFAULT;
	/* co_lnotab has no end of the last line. */
	if (w->answer < 0)
		return w->minor < 10 ? w->computed : 0;
	return w->answer;
}

#endif
