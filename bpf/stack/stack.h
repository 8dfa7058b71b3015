/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_STACK_STACK_H
#define GPU_GADGETS_STACK_STACK_H

#include "program/drops.h"
#include "process/process.h"

/*
 * stack: the call stack of the current thread as user space will read it: the
 * native return addresses up to the interpreter, then the Python frames.
 * Go mirror: internal/stack (wire.go), checked against BTF.
 */
#define STACK_NATIVE_FRAMES 64
#define STACK_PYTHON_FRAMES 128

enum stack_flag {
	STACK_HAS_PYTHON = 1,	     /* an interpreter was found in the process */
	STACK_PYTHON_TRUNCATED = 2,  /* more than STACK_PYTHON_FRAMES; innermost kept */
	STACK_PYTHON_INCOMPLETE = 4, /* a read failed: frames are missing at the root */
	STACK_NATIVE_TRUNCATED = 8,
	/* Why native frames are missing at the root, with the rules of stack/unwind.h: */
	STACK_NATIVE_NO_RULES = 16,    /* code without unwind information */
	STACK_NATIVE_NOT_LOADED = 32,  /* its rules were not there yet */
	STACK_NATIVE_BROKEN = 64,      /* no return address where the rule has it */
	STACK_NATIVE_UNREADABLE = 128, /* a page of the stack is not in memory */
	STACK_NATIVE_BUSY = 512,       /* the mappings were being changed, or no memory */
	/* Not in a stack that is stored: python_frame.flags are the entries from C. */
	STACK_PYTHON_ENTRIES = 1 << 30,
	/* Nor this: other Python frames will follow, so the native ones are walked to the last. */
	STACK_NATIVE_TO_END = 1 << 29,
	/* Nor these. With STACK_PYTHON_ENTRIES: C called one of the frames; it may have called others
	 * than the outermost. */
	STACK_PYTHON_ENTERED = 1 << 28,
	STACK_PYTHON_RUNS = 1 << 27,
};

#define STACK_NATIVE_CUT \
	(STACK_NATIVE_TRUNCATED | STACK_NATIVE_NO_RULES | STACK_NATIVE_NOT_LOADED | \
	 STACK_NATIVE_BROKEN | STACK_NATIVE_UNREADABLE | STACK_NATIVE_BUSY)

struct python_frame {
	__u64 symbol; /* key of symbols_by_id; 0: name unreadable */
	__u32 line;   /* 1-based source line; 0: unknown */
	/* enum python_frame_flag. With STACK_PYTHON_ENTRIES: of a frame that C called, the lower
	 * half of an address in the frame of the function of C that runs it; else 0. */
	__u32 flags;
};

enum python_frame_flag {
	/* The frame is the innermost of another thread, which has asked this one for its
	 * work (call/backward.h). */
	PYTHON_FRAME_ASKED = 1,
};

/*
 * In stack.native: the native frame of the interpreter's that runs the next frames of
 * stack.python, as many as the lower bits say. So the order of two languages that call each other
 * is kept (stack/runs.h). All other Python frames come after the native ones.
 */
#define STACK_NATIVE_RUN (1ULL << 63)

struct stack {
	__u32 flags; /* enum stack_flag */
	__u16 native_count;
	__u16 python_count;
	/* Leaf first: an address in the probed function, then return addresses, and runs. */
	__u64 native[STACK_NATIVE_FRAMES];
	struct python_frame python[STACK_PYTHON_FRAMES]; /* leaf first */
};

/* A Python code object's names, as bytes of the interpreter's own encoding. */
#define SYMBOL_NAME_BYTES 128
#define SYMBOL_FILE_BYTES 256
#define SYMBOL_CLASS_BYTES 64

struct symbol {
	__u32 first_line;
	__u16 name_len, file_len, class_len; /* bytes used; the tail is kept when cut */
	/* Bytes per character as in PyUnicode_KIND: 1 (Latin-1), 2 (UCS-2), 4. */
	__u8 name_kind, file_kind;
	__u8 cut;	       /* bit 0: name, 1: file, 2: class were longer */
	__u8 name_is_qualname; /* 0: co_name; the class, if any, is in class_name */
	__u8 pad[4];
	char name[SYMBOL_NAME_BYTES];
	char file[SYMBOL_FILE_BYTES];
	char class_name[SYMBOL_CLASS_BYTES]; /* class of `self` below 3.11; UTF-8 */
};

#ifndef MAX_STACKS
#define MAX_STACKS 16384
#endif
#ifndef MAX_SYMBOLS
#define MAX_SYMBOLS 32768
#endif
/*
 * Programs that run in interrupts define this as 0 and preallocate: memory for
 * several new entries at once is not available there.
 */
#ifndef STACK_MAP_FLAGS
#define STACK_MAP_FLAGS MAP_FLAGS_GROWING
#endif

/*
 * Content hash of a stack → its frames. Written once per new stack by the
 * programs, read by user space. Not LRU: a row's stack must stay readable. Not
 * preallocated where it can be helped: 2.6 KB × MAX_STACKS would be 42 MB for a node with one process.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, STACK_MAP_FLAGS);
	__uint(max_entries, MAX_STACKS);
	__type(key, __u64);
	__type(value, struct stack);
} stacks_by_id SEC(".maps");

/* Content hash of a code object's names → the names. As stacks_by_id. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, STACK_MAP_FLAGS);
	__uint(max_entries, MAX_SYMBOLS);
	__type(key, __u64);
	__type(value, struct symbol);
} symbols_by_id SEC(".maps");

#endif
