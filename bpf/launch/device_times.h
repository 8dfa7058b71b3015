/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_LAUNCH_DEVICE_TIMES_H
#define GPU_GADGETS_LAUNCH_DEVICE_TIMES_H

#include "launch/events.h"

#if !defined(LINUX_5_10) && defined(DEVICE_TIMES_LIBRARY)

#include "call/usdt.h"
#include "program/ring.h"

/*
 * device_times: when the GPU ran each kernel, as reported by libparcagpucupti, a library
 * in the process that uses CUPTI and has these static probes. On the launching thread,
 * just before the call returns:
 *
 *   cuda_correlation(u32 correlation, s32 function, char *name)
 *
 * and later, in batches, on a thread of CUPTI:
 *
 *   kernel_executed(u64 start, u64 end, u32 correlation, u32 device, u32 stream,
 *                   u32 graph, u64 node, char *name)
 *
 * A negative function is one of the driver, in which the thread still is; any other is
 * one of the runtime, and the thread has just left the driver. The library fires the
 * probes only while a tracer holds the probe's semaphore, which attaching increments, and
 * for a limited number of launches a second.
 *
 * A kernel has a row like those of calls (launch/rows.h), with the stack of its launch
 * and without a driver function.
 *
 * If it is off, nothing is attached, the programs are empty, the maps have one entry and the
 * ring its least size; the operator devicetimes enlarges them.
 */
const volatile bool device_times = false;
const volatile bool gadget_var_device_times = false;

/* State of a launch, kept until its kernel has been executed. */
struct device_launch {
	__u64 stack;
	__u64 start_boot_ns;
	__u64 span; /* of a trace; 0: none */
	__u32 api;
	__u32 tid;
};

struct device_launch_key {
	__u64 process;
	__u32 correlation;
	__u32 pad;
};

/* Launch → its state. Written by its thread, read when its kernels have ended, which for
 * a graph is several times. LRU: nothing reports the last one. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1); /* see above */
	__type(key, struct device_launch_key);
	__type(value, struct device_launch);
} device_launches SEC(".maps");

/* A thread's launch whose correlation is not reported yet, or a correlation without its launch. */
struct device_thread {
	__u64 process; /* owner: the storage survives exec */
	struct device_launch newest;
	__u32 correlation; /* of the call that it is in; 0: none */
	bool is_new;	   /* newest has no correlation */
	bool is_reported;   /* it has had a correlation */
};

/* Thread → its launch. Written and read by the thread's own probes only. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct device_thread);
} device_thread_by_task SEC(".maps");

static __always_inline struct device_thread *device_thread(__u64 process)
{
	struct device_thread *t;

	t = bpf_task_storage_get(&device_thread_by_task, bpf_get_current_task_btf(), 0,
				 BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!t) {
		drop(DROP_SCRATCH);
		return 0;
	}
	if (t->process != process) {
		__builtin_memset(t, 0, sizeof(*t));
		t->process = process;
	}
	return t;
}

static __always_inline void device_correlate(struct device_thread *t, __u32 correlation)
{
	struct device_launch_key key = { .process = t->process, .correlation = correlation };

	bpf_map_update_elem(&device_launches, &key, &t->newest, BPF_ANY);
	t->is_new = false;
	t->correlation = 0;
}

/* A call that may have launched a kernel has returned. */
static __always_inline void device_launched(const struct row_key *key, __u64 start, __u64 span)
{
	struct device_thread *t;
	__u8 op;

	if (!device_times)
		return;
	op = call_api_of(key->api)->op;
	if (op < CALL_LAUNCH || op > CALL_GRAPH)
		return;
	t = device_thread(key->process);
	if (!t)
		return;
	if (key->result || key->captured) {
		t->correlation = 0;
		return;
	}
	if (t->is_new && t->is_reported)
		drop(DROP_DEVICE_TIME_MISSING);
	t->newest.stack = key->stack;
	t->newest.start_boot_ns = start;
	if (span_ids) {
		t->newest.span = span;
		span_learn(key->process, span); /* the call may have no row: it was not sampled */
	}
	t->newest.api = key->api;
	t->newest.tid = bpf_get_current_pid_tgid();
	t->is_new = true;
	if (t->correlation)
		device_correlate(t, t->correlation);
}

SEC("uprobe/gadget_program_disabled")
int device_correlation(struct pt_regs *ctx)
{
	__u64 process, correlation = 0, function = 0;
	struct usdt_site *site;
	struct device_thread *t;
	struct thread *calling;

	kernel_stack_only();
	if (!device_times || discard())
		return 0;
	site = usdt_site_of(ctx);
	if (!site || !usdt_read(ctx, site, 0, &correlation) || !usdt_read(ctx, site, 1, &function)) {
		drop(DROP_READ_ARGUMENT);
		return 0;
	}
	process = process_id_of(task_current());
	t = device_thread(process);
	if (!t)
		return 0;
	t->is_reported = true;
	calling = thread_current(process, false);
	if ((__s64)function < 0 && calling && calling->call.sp)
		t->correlation = correlation;
	else if (t->is_new)
		device_correlate(t, correlation);
	return 0;
}

/* One kernel as an event: the data source `device_events`. */
struct device_event {
	gadget_timestamp timestamp_raw; /* when CUPTI reported it */
	__u64 start_device_ns, end_device_ns; /* of CUPTI's clock */
	__u64 reported_boot_ns; /* when CUPTI reported it */
	__u64 launch_boot_ns;	 /* when its launch was called; 0: not seen */
	struct gadget_process proc; /* of the launch, where it was seen */
	__u64 process;
	__u64 stack_id;
	__u64 function;
	__u64 node;
	__u32 device, stream, graph, correlation;
	char operation[OPERATION_BYTES];
	char api[API_BYTES];
};

GADGET_TRACER_MAP(device_ring, LEAST_RING); /* see above */
GADGET_TRACER(device_events, device_ring, device_event);

/* Arguments of the kernel's probe. */
struct device_kernel {
	__u64 start, end, correlation, device, stream, graph, node, name;
};

_Static_assert(sizeof(struct device_kernel) == 8 * USDT_ARGUMENTS, "one after the other");

static __noinline int device_send(struct device_kernel *k, const struct row_key *key,
				  struct device_launch *launch)
{
	struct device_event *e;

	if (!k || !key)
		return 0;
	e = bpf_ringbuf_reserve(&device_ring, sizeof(*e), 0);
	if (!e) {
		drop(DROP_EVENT_FULL);
		return 0;
	}
	__builtin_memset(e, 0, sizeof(*e));
	e->timestamp_raw = e->reported_boot_ns = bpf_ktime_get_boot_ns();
	e->start_device_ns = k->start;
	e->end_device_ns = k->end;
	gadget_process_populate(&e->proc);
	if (launch) {
		e->launch_boot_ns = launch->start_boot_ns;
		e->proc.tid = launch->tid;
	}
	e->process = key->process;
	e->stack_id = key->stack;
	e->function = key->function;
	e->node = k->node;
	e->device = k->device;
	e->stream = k->stream;
	e->graph = k->graph;
	e->correlation = k->correlation;
	if (launch)
		api_name(e->api, launch->api);
	operation_name(e->operation, 0, false);
	bpf_ringbuf_submit(e, 0);
	return 0;
}

/* Adds a kernel to its row. The fields of calls stay 0. */
static __noinline int device_add(struct row_key *key, __u64 span, __u64 ns)
{
	struct call_facts none = { .span = span };
	struct row *row;

	if (!key)
		return 0;
	row = row_of(key, &none);
	if (!row) {
		drop(DROP_UNKNOWN_FULL);
		return 0;
	}
	__sync_fetch_and_add(&row->calls, 1);
	__sync_fetch_and_add(&row->sampled, 1);
	__sync_fetch_and_add(&row->host_ns, ns);
	row_time(row, ns, 1);
	return 0;
}

SEC("uprobe/gadget_program_disabled")
int device_executed(struct pt_regs *ctx)
{
	struct device_launch_key which = {};
	struct device_kernel k = {};
	struct device_launch *launch;
	struct row_key key = {};
	struct usdt_site *site;

	kernel_stack_only();
	if (!device_times || discard())
		return 0;
	site = usdt_site_of(ctx);
	if (!site || !usdt_read(ctx, site, 0, &k.start) || !usdt_read(ctx, site, 1, &k.end) ||
	    !usdt_read(ctx, site, 2, &k.correlation) || !usdt_read(ctx, site, 3, &k.device) ||
	    !usdt_read(ctx, site, 4, &k.stream) || !usdt_read(ctx, site, 5, &k.graph) ||
	    !usdt_read(ctx, site, 6, &k.node) || !usdt_read(ctx, site, 7, &k.name)) {
		drop(DROP_READ_ARGUMENT);
		return 0;
	}
	/* CUPTI reports 0 if it could not collect the time. */
	if (!k.start || k.end < k.start) {
		drop(DROP_DEVICE_UNTIMED);
		return 0;
	}
	key.process = which.process = process_id_of(task_current());
	which.correlation = k.correlation;
	key.device = k.device <= 127 ? k.device : -1;
	key.captured = KERNEL_UNSEEN;
	key.function = k.name ? name_store(key.process, 0, k.name, false) : 0;
	launch = bpf_map_lookup_elem(&device_launches, &which);
	if (launch) {
		key.stack = launch->stack;
		key.captured = 0;
	} else {
		drop(DROP_DEVICE_LAUNCH);
	}
	device_add(&key, launch && span_ids ? launch->span : 0, k.end - k.start);
	if (events || timeline_events)
		device_send(&k, &key, launch);
	return 0;
}

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 2);
	__uint(key_size, 4);
	__array(values, int(struct pt_regs *));
} attach_usdt SEC(".maps") = { .values = { [0] = &device_correlation, [1] = &device_executed } };

const struct attach_point device_points[] ATTACH_POINTS = {
	{ DEVICE_TIMES_LIBRARY, "parcagpu:cuda_correlation", 0, ATTACH_USDT },
	{ DEVICE_TIMES_LIBRARY, "parcagpu:kernel_executed", 1, ATTACH_USDT },
};

#else
static __always_inline void device_launched(const struct row_key *key, __u64 start, __u64 span)
{
}
#endif

#endif
