/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_CALL_BACKWARD_H
#define GPU_GADGETS_CALL_BACKWARD_H

#include "program/drops.h"

/*
 * backward: which line caused the work that PyTorch's autograd does on threads of its own.
 * These have no Python frames; the line of a kernel that is launched there is the one that
 * called backward() on another thread.
 *
 * torch::autograd::Engine::execute_with_graph_task() begins a pass, on the thread that asks
 * for it: a probe of its entry keeps that thread's stack by the address of the pass's
 * GraphTask. A thread that works on a node of a pass has the GraphTask in a thread-local
 * std::shared_ptr, current_graph_task (torch/csrc/autograd/engine.cpp, GraphTaskGuard). Its
 * symbol is not exported: where it is in the thread-local block of libtorch_cpu is found by
 * looking for a known GraphTask there, once for each process.
 *
 * What a process has in its memory can attribute its own work to another of its own
 * passes, and nothing else. Not for LINUX_5_10: see process/tls.h.
 */
#ifndef LINUX_5_10

#define MAX_BACKWARD_PASSES 4096
#define MAX_BACKWARD_PROCESSES 1024

/* The entry of Engine::execute_with_graph_task, of PyTorch 1.9 and newer. */
#define BACKWARD_SYMBOL \
	"_ZN5torch8autograd6Engine23execute_with_graph_taskERKSt10shared_ptrINS0_9" \
	"GraphTaskEES2_INS0_4NodeEEONS0_11InputBufferE"

/* The low byte of its cookie: the other ids of programs that may sleep are lower. */
#define BACKWARD_ID 255
#define BACKWARD_POINT \
	{ "libtorch_cpu", BACKWARD_SYMBOL, BACKWARD_ID, ATTACH_ENTRY_SLEEPS | ATTACH_THREAD_LOCALS }

#define TLS_BLOCKS 64
/* The most that is looked through: that of libtorch_cpu 2.6 has 11,144 bytes. */
#define TLS_BLOCK_BYTES 65536

/* Where the library of a probed function has its thread-local variables; addresses are in
 * the file's own numbering. Go mirror: operators/attach/attach (threadlocals.go). */
struct tls_block {
	__u64 function; /* the probed one */
	__u64 at;	/* of one of the variables: see tls_address() */
	__u64 offset;	/* of that variable in the block */
	__u32 access;	/* enum tls_access */
	__u32 bytes;	/* of the block */
};

/* Index → block, from 1 on. Written by the operator attach before it attaches. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, TLS_BLOCKS);
	__type(key, __u32);
	__type(value, struct tls_block);
} tls_blocks SEC(".maps");

/* What a thread remembers, in struct thread. */
struct backward_thread {
	__u64 variable; /* address of its current_graph_task; 0: not known */
	__u64 current;	/* that of the pass that it works on now; 0: none */
	__u64 begun;	/* the GraphTask of the newest pass that it began; 0: none */
	/* See struct backward_pass. The first is 0 unless a pass begins now. */
	__u64 argument, place;
	__u32 own;
	__u32 searches; /* of its, without a result: see backward_search() */
};

struct backward_key {
	__u64 process;
	__u64 task; /* GraphTask * */
};

struct backward_pass {
	__u64 stack;	/* of the thread that began it: key of stacks_by_id; 0: it has no Python */
	__u64 control;	/* the second word of the std::shared_ptr */
	__u64 argument; /* where that is, on the stack of the thread */
	__u64 outer;	/* the innermost pass of the thread that this one is inside of; 0: none */
	__u64 place;	/* the thread's innermost Python frame, for comparison */
	__u32 tid;	/* of the thread */
	__u32 own;	/* how many Python frames the thread had */
};

/*
 * Pass → who began it. Written where one begins, which replaces an ended one at the same
 * address; read where a thread works on it. LRU: ended passes age out, and where a live one
 * does, that is counted (DROP_BACKWARD_UNKNOWN).
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_BACKWARD_PASSES);
	__type(key, struct backward_key);
	__type(value, struct backward_pass);
} backward_passes SEC(".maps");

struct backward_process {
	struct tls_block block; /* with `at` as it is in the process */
	__u64 variable;		/* where current_graph_task is in the block, plus 1; 0: not known */
	__u32 passes;		/* how many have begun */
	__u32 searches;		/* searches for it without a result */
};

/* Process → where its threads have their passes. Written where a pass begins. LRU: what is
 * lost is found again. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_BACKWARD_PROCESSES);
	__type(key, __u64);
	__type(value, struct backward_process);
} backward_by_process SEC(".maps");

#endif

#endif
