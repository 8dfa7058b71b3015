// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause)

/* Counts the calls and returns of every attach point by its cookie. */

#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>

struct pt_regs;
#include "../../../bpf/call/attach_point.h"

#define MAX_COOKIES 256

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2 * MAX_COOKIES);
	__type(key, __u32);
	__type(value, __u64);
} calls_by_cookie SEC(".maps");

static __always_inline int selected(void);

static int count(struct pt_regs *ctx, __u32 base)
{
	__u32 key = bpf_get_attach_cookie(ctx) % MAX_COOKIES + base;
	__u64 *n = bpf_map_lookup_elem(&calls_by_cookie, &key);

	if (n && selected())
		__sync_fetch_and_add(n, 1);
	return 0;
}

SEC("uprobe/gadget_program_disabled") int enter(struct pt_regs *ctx) { return count(ctx, 0); }
SEC("uretprobe/gadget_program_disabled") int leave(struct pt_regs *ctx) { return count(ctx, MAX_COOKIES); }
SEC("uprobe.multi/gadget_program_disabled") int enter_multi(struct pt_regs *ctx) { return count(ctx, 0); }
SEC("uretprobe.multi/gadget_program_disabled") int leave_multi(struct pt_regs *ctx) { return count(ctx, MAX_COOKIES); }

/* As our gadgets have them for unmodified ig. */
SEC("uprobe/libgputest:gpuAlloc") int enter_gpuAlloc(struct pt_regs *ctx) { return count(ctx, 0); }
SEC("uretprobe/libgputest:gpuAlloc") int exit_gpuAlloc(struct pt_regs *ctx) { return count(ctx, MAX_COOKIES); }

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, __u32);
} selected_by_tgid SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} selection_in_force SEC(".maps");

static int selected(void)
{
	__u32 tgid = bpf_get_current_pid_tgid() >> 32, zero = 0;
	__u32 *on = bpf_map_lookup_elem(&selection_in_force, &zero);

	return !on || !*on || bpf_map_lookup_elem(&selected_by_tgid, &tgid);
}

/* Empty: what a probe costs by itself. */
SEC("uprobe/gadget_program_disabled") int nothing(struct pt_regs *ctx) { return 0; }

ATTACH_PROGRAMS(enter, leave, enter_multi, leave_multi);

struct attach_point points[] ATTACH_POINTS = {
	{"libgputest", "gpuAlloc", 1, ATTACH_EXIT},
	{"libgputest", "gpuFree", 2, 0},
};

char LICENSE[] SEC("license") = "Dual BSD/GPL";
