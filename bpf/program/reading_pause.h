/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_PROGRAM_READING_PAUSE_H
#define GPU_GADGETS_PROGRAM_READING_PAUSE_H

/*
 * reading_pause: user space (operators/decode/readings) does not need each reading of a table with
 * many rows, and to copy the rows costs more than to name them. Programs that iterate over such a
 * table leave its entries out until a time, and count those: a reading from which any was left out
 * is none.
 */
enum {
	READING_PAUSED_UNTIL, /* boot time in ns, written by user space; 0: no pause */
	READING_LEFT_OUT,     /* entries, written by the programs */
	READING_PAUSE_VALUES
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, READING_PAUSE_VALUES);
	__type(key, __u32);
	__type(value, __u64);
} reading_pause SEC(".maps");

/* Whether to leave out the entry at hand. One thread iterates over the tables of a gadget. */
static __noinline bool reading_is_paused(void)
{
	__u32 index = READING_PAUSED_UNTIL;
	__u64 *value = bpf_map_lookup_elem(&reading_pause, &index);

	if (!value || !*value || bpf_ktime_get_boot_ns() >= *value)
		return false;
	index = READING_LEFT_OUT;
	value = bpf_map_lookup_elem(&reading_pause, &index);
	if (!value)
		return false;
	*value += 1;
	return true;
}

#endif
