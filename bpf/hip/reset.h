/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_HIP_RESET_H
#define GPU_GADGETS_HIP_RESET_H

/* reset: what hipDeviceReset frees. */

/*
 * Process → how many devices it has, as hipGetDeviceCount answered. LRU: entries of ended
 * processes age out. 4,096: as MAX_PRIMARIES.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u64);
	__type(value, __u32);
} devices_by_process SEC(".maps");

static __always_inline void device_count_learn(__u64 process, __u32 devices)
{
	bpf_map_update_elem(&devices_by_process, &process, &devices, BPF_ANY);
}

/*
 * In the place of the context that owns an allocation (struct live): the device whose reset
 * frees it, plus 1; 0: none, or not known.
 */
static __always_inline __u64 device_owner(__s32 device)
{
	return device + 1;
}

/*
 * Managed and pinned memory belong to all devices of the process together. A reset frees what
 * belongs to its device alone (MemObjMap::Purge of ROCclr 6.4.3), which includes them where the
 * process has one.
 */
static __always_inline __u64 device_owner_of_all(__u64 process)
{
	__u32 *devices = bpf_map_lookup_elem(&devices_by_process, &process);

	return devices && *devices == 1 ? device_owner(0) : 0;
}

#endif
