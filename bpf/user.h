/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_USER_H
#define GPU_GADGETS_USER_H

/*
 * user: reads of the traced process's memory.
 *
 * bpf_probe_read_user() does not fault pages in, and a forked child lacks the
 * page tables of clean file mappings for good (nothing touches them again). So
 * a module that fails to read notes where; the sleepable program then faults
 * that range in with bpf_copy_from_user() and runs the module again. Programs
 * that may not sleep keep the failure.
 */
struct user_fault {
	__u64 address; /* 0: no read failed */
	__u32 bytes;
	__u32 count; /* reads that failed since the last reset */
};

/* Reads `bytes` at `address`; on failure notes it in `fault`. 0 or -errno. */
static __always_inline long user_read(struct user_fault *fault, void *to, __u32 bytes,
				      __u64 address)
{
	long err = bpf_probe_read_user(to, bytes, (void *)address);

	if (err) {
		fault->address = address;
		fault->bytes = bytes;
		fault->count++;
	}
	return err;
}

/*
 * Faults the noted range in (first and last byte: a read may cross a page).
 * Sleepable programs only. 0: worth another try; -errno: not mapped.
 */
static __always_inline long user_fault_in(struct user_fault *fault)
{
	__u8 byte;
	long err = bpf_copy_from_user(&byte, 1, (void *)fault->address);

	if (!err && fault->bytes > 1)
		err = bpf_copy_from_user(&byte, 1,
					 (void *)(fault->address + fault->bytes - 1));
	return err;
}

#endif
