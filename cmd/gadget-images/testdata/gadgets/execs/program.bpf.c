/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
/*
 * execs: one row per executed program. It exists to test how images are built
 * and run, so it uses one of each: a tracer, a parameter, the container filter,
 * a program that needs tracefs.
 */
#include <vmlinux.h>
#include <bpf/bpf_helpers.h>

#include <gadget/buffer.h>
#include <gadget/common.h>
#include <gadget/filter.h>
#include <gadget/macros.h>
#include <gadget/types.h>

struct exec_event {
	gadget_timestamp timestamp_raw;
	struct gadget_process proc;
	__u32 old_pid;
};

const volatile __u32 min_pid = 0;
GADGET_PARAM(min_pid);

GADGET_TRACER_MAP(events, 1024 * 256);
GADGET_TRACER(execs, events, exec_event);

SEC("tracepoint/sched/sched_process_exec")
int on_exec(struct trace_event_raw_sched_process_exec *ctx)
{
	struct exec_event *event;

	if (gadget_should_discard_data_current())
		return 0;
	if ((bpf_get_current_pid_tgid() >> 32) < min_pid)
		return 0;
	event = gadget_reserve_buf(&events, sizeof(*event));
	if (!event)
		return 0;
	event->timestamp_raw = bpf_ktime_get_boot_ns();
	gadget_process_populate(&event->proc);
	event->old_pid = ctx->old_pid;
	gadget_submit_buf(ctx, &events, event, sizeof(*event));
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
