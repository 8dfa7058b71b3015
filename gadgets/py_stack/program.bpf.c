// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause)
//
// py_stack: the Python stack of every thread, without stopping the process.
//
// On a CPU's clock the stack of what runs there is taken and counted (profile).
// A task iterator takes the stacks of all threads, those that sleep, too: once,
// each for itself (dump), or again and again, counted (profile --wall).

#include <vmlinux.h>

#include <asm-generic/errno.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#define GADGET_NO_BUF_RESERVE
#include <gadget/buffer.h>
#include <gadget/common.h>
#include <gadget/macros.h>
#include <gadget/mntns_filter.h>
#include <gadget/types.h>

enum mode {
	MODE_ON_CPU = 0,
	MODE_DUMP = 1,
	MODE_WALL = 2,
};

/*
 * Constants that the operator pystack sets before the programs are loaded. ig
 * knows them by a second variable with its prefix, and sets the one without.
 */
#define OPERATOR_CONSTANT(type, name)    \
	const volatile type name = 0;    \
	const volatile type gadget_var_##name = 0

OPERATOR_CONSTANT(__u32, py_mode);      /* enum mode */
OPERATOR_CONSTANT(bool, py_gil_only);   /* only samples of the GIL's holder */
OPERATOR_CONSTANT(bool, py_by_thread);  /* rows are by thread */
/* What --native-stacks auto is here: enum native_rules of stack/rules.h. */
OPERATOR_CONSTANT(__u8, native_rules_auto);

/* Preallocated: 19 MB of stacks and 8 MB of names. */
#define STACK_MAP_FLAGS 0
#define PROCESS_MAP_FLAGS 0
#define MAX_STACKS 8192
#define MAX_SYMBOLS 16384

#define WITH_QUOTAS /* process/quota.h */

#include "python/other.h"
#include "stack/native.h"
#include "stack/sampled.h"
#include "stack/sample_rows.h"
#include "process/selection.h"
#include "stack/store.h"
#include "host/wchan.h"

/* include/linux/sched.h */
#define PF_KTHREAD 0x00200000
#define TASK_UNINTERRUPTIBLE_BIT 2
#define TASK_STOPPED_BIT 4
#define TASK_TRACED_BIT 8

#if defined(__TARGET_ARCH_arm64)
#define SYSCALL_FUTEX 98
#else
#define SYSCALL_FUTEX 202
#endif

static __always_inline bool discard(struct task_struct *task)
{
	if (!task->mm || task->flags & PF_KTHREAD)
		return true;
	if (gadget_filter_by_mntns &&
	    gadget_should_discard_mntns_id(BPF_CORE_READ(task, nsproxy, mnt_ns, ns.inum)))
		return true;
	return !selection_has(task->tgid);
}

static __always_inline void stack_clear(struct stack *s)
{
	s->flags = native_rules == NATIVE_RULES_ALL ? STACK_PYTHON_ENTRIES : 0;
	s->native_count = 0;
	s->python_count = 0;
}

/* Whether users of a Python profiler want this stack: not that of a thread of native code, unless
 * they want native stacks, nor of a process that may not run Python. */
static __always_inline bool worth_showing(const struct stack *s)
{
	return s->flags & STACK_HAS_PYTHON &&
	       (s->python_count || s->flags & STACK_PYTHON_INCOMPLETE ||
		(s->native_count && !py_gil_only));
}

/* Whether the native frames are wanted of a stack whose Python frames are known. */
static __always_inline bool wants_native(const struct stack *s)
{
	return native_rules == NATIVE_RULES_ALL && s->flags & STACK_HAS_PYTHON;
}

/* An address in the interpreter's data, if native frames end there; else 0. */
static __always_inline __u64 interpreter_of(const struct stack *s)
{
	struct python_thread *t = s->python_count ? python_here(0) : 0;

	return t ? t->runtime : 0;
}

/* Does --gil want the sample? */
static __always_inline bool gil_admits(long gil)
{
	if (!py_gil_only)
		return true;
	if (gil == PY_GIL_UNKNOWN)
		drop(DROP_GIL_UNKNOWN);
	return gil == PY_GIL_HELD;
}

static __always_inline void count(struct stack *s, struct task_struct *task, __u64 process, long gil,
				  __u64 span)
{
	struct span_row_key key = { .row.process = process, .span = span };

	key.row.stack = stack_store_of(task, s, stack_hash(s));
	if (py_by_thread)
		key.row.tid = task->pid;
	row_count(&key, task, gil == PY_GIL_HELD);
}

struct stack_scratch {
	struct stack stack;
	struct user_fault fault;
};

/* CPU → room for the stack that is taken on its clock: interrupts are off. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct stack_scratch);
} scratch_by_cpu SEC(".maps");

SEC("perf_event/sampler")
int sampler(struct bpf_perf_event_data *ctx)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct stack_scratch *scratch;
	__u32 zero = 0;
	__u64 process;
	long err, gil;

	if (py_mode != MODE_ON_CPU || discard(task))
		return 0;
	scratch = bpf_map_lookup_elem(&scratch_by_cpu, &zero);
	if (!scratch)
		return 0;
	process = process_id_of(task);
	stack_clear(&scratch->stack);
	err = python_try(&scratch->stack, &scratch->fault, process, false);
	if (err == -EFAULT)
		python_fault_of(&scratch->stack);
	if (err == -ENOENT)
		return 0;
	if (wants_native(&scratch->stack))
		unwind_stopped(&scratch->stack, process, interpreter_of(&scratch->stack));
	if (native_rules == NATIVE_RULES_ALL)
		runs_forget(&scratch->stack);
	if (!worth_showing(&scratch->stack))
		return 0;
	gil = python_gil(0);
	if (gil_admits(gil))
		count(&scratch->stack, task, process, gil, span_current(task, false));
	return 0;
}

enum thread_state {
	THREAD_RUNNING = 1,  /* on a CPU */
	THREAD_RUNNABLE = 2, /* waits for one */
	THREAD_SLEEPING = 3,
	THREAD_BLOCKED = 4, /* sleeps, and signals do not wake it */
	THREAD_STOPPED = 5, /* by a signal or a debugger */
};

/* One thread as the operator reads it. Go mirror: operators/decode/pystack. */
struct thread_record {
	__u64 process;
	__u64 stack_id;
	__u64 mntns_id;
	__u32 pid, tid;
	__u32 state; /* enum thread_state */
	__u32 gil;   /* enum python_gil */
	__s32 syscall; /* number that it sleeps in; -1: none */
	__u32 flags; /* enum stack_flag */
	__u32 version; /* PY_VERSION_HEX of the interpreter; 0: no interpreter */
	__u32 moved; /* 1: it ran during each attempt */
	char comm[16]; /* of the thread */
	char process_comm[16];
	char wchan[WCHAN_BYTES]; /* kernel function that it sleeps in; empty: unknown */
};

/* Only what a global points to is described in the object's BTF. */
const struct thread_record *thread_record_layout __attribute__((unused));

/* The room of the one reader of the task iterator. */
struct reader_scratch {
	struct stack stack;
	struct thread_record record;
	struct wchan_scratch wchan;
	__u64 switches; /* of the thread, before its stack is read: see unwind_other() */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct reader_scratch);
} scratch_of_reader SEC(".maps");

static __always_inline __u32 state_of(struct task_struct *task)
{
	__u32 state = task->__state;

	if (!state)
		return task->on_cpu ? THREAD_RUNNING : THREAD_RUNNABLE;
	if (state & (TASK_STOPPED_BIT | TASK_TRACED_BIT))
		return THREAD_STOPPED;
	return state & TASK_UNINTERRUPTIBLE_BIT ? THREAD_BLOCKED : THREAD_SLEEPING;
}

/* The call that the task sleeps in, and in `futex` the address if it is that one. */
static __always_inline __s32 syscall_of(struct task_struct *task, __u64 *futex)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
	__u64 first;
	__s32 call;

	if (!regs)
		return -1;
#if defined(__TARGET_ARCH_arm64)
	call = regs->syscallno;
	first = regs->orig_x0;
#else
	call = regs->orig_ax;
	first = regs->di;
#endif
	if (call == SYSCALL_FUTEX)
		*futex = first;
	return call;
}

static __always_inline void describe(struct thread_record *r, struct task_struct *task)
{
	struct python_process *known = bpf_map_lookup_elem(&python_by_process, &r->process);

	r->pid = task->tgid;
	r->tid = task->pid;
	r->mntns_id = BPF_CORE_READ(task, nsproxy, mnt_ns, ns.inum);
	r->version = known ? known->version : 0;
	bpf_probe_read_kernel(r->comm, sizeof(r->comm), task->comm);
	bpf_probe_read_kernel(r->process_comm, sizeof(r->process_comm), task->group_leader->comm);
}

SEC("iter.s/task")
int threads(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct reader_scratch *scratch;
	struct thread_record *r;
	__u64 process, futex = 0;
	__u32 zero = 0;
	long err, gil;

	if (py_mode == MODE_ON_CPU || !task || discard(task))
		return 0;
	scratch = bpf_map_lookup_elem(&scratch_of_reader, &zero);
	if (!scratch || !python_look_at(task))
		return 0;
	r = &scratch->record;
	process = process_id_of(task);
	stack_clear(&scratch->stack);
	scratch->switches = unwind_switches(task);
	err = python_unwind_other(&scratch->stack, process);
	if (err == -ENOENT || !(scratch->stack.flags & STACK_HAS_PYTHON))
		return 0;
	if (wants_native(&scratch->stack))
		unwind_other(&scratch->stack, task, process, interpreter_of(&scratch->stack),
			     scratch->switches);
	if (native_rules == NATIVE_RULES_ALL)
		runs_forget(&scratch->stack);
	if (py_mode == MODE_WALL) {
		gil = python_gil_of_other(0);
		if (worth_showing(&scratch->stack) && gil_admits(gil))
			count(&scratch->stack, task, process, gil, 0);
		return 0;
	}
	r->state = state_of(task);
	r->syscall = -1;
	r->wchan[0] = 0;
	if (r->state >= THREAD_SLEEPING) {
		r->syscall = syscall_of(task, &futex);
		wchan(&scratch->wchan, r->wchan, task);
	}
	r->gil = python_gil_of_other(futex);
	r->process = process;
	r->flags = scratch->stack.flags;
	r->moved = err == -EAGAIN;
	describe(r, task);
	r->stack_id = 0;
	if (worth_showing(&scratch->stack))
		r->stack_id = stack_store_of(task, &scratch->stack, stack_hash(&scratch->stack));
	bpf_seq_write(ctx->meta->seq, r, sizeof(*r));
	return 0;
}

/* For the operator: ig samples at a fixed period, and attaches no sleepable
 * iterators. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, 4);
	__array(values, int(struct bpf_perf_event_data *));
} sampler_program SEC(".maps") = { .values = { [0] = &sampler } };

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, 4);
	__array(values, int(struct bpf_iter__task *));
} thread_iterator SEC(".maps") = { .values = { [0] = &threads } };

SEC("tp_btf/sched_process_exit")
int BPF_PROG(on_exit, struct task_struct *task)
{
	__u64 process = process_exited(task);

	if (process) {
		python_process_gone(process);
		selection_gone(task->tgid);
		span_gone(task->tgid);
	}
	return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(on_exec, struct task_struct *task)
{
	process_replaced(task);
	span_gone(task->tgid);
	return 0;
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(on_fork, struct task_struct *parent, struct task_struct *child)
{
	selection_inherit(parent->tgid, child->tgid);
	span_inherit(parent->tgid, child->tgid);
	return 0;
}

#include "rows.h"

DROPS_DATA_SOURCE

char LICENSE[] SEC("license") = "Dual BSD/GPL";
