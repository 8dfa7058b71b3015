/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_PROCESS_USER_H
#define GPU_GADGETS_PROCESS_USER_H

/*
 * user: reads of the traced process's memory.
 *
 * bpf_probe_read_user() does not fault pages in, and a forked child has no page tables
 * for clean file mappings that it never touches again. So a failed read records its
 * address; a sleepable program then faults that range in with bpf_copy_from_user() and
 * repeats the work. In programs that may not sleep the failure remains.
 */
#ifndef USER_OF_OTHER_TASK /* once: see python/other.h */
struct user_fault {
	__u64 address; /* 0: no read failed */
	__u32 bytes;
	__u32 count; /* reads that failed since the last reset */
	__u32 tid;   /* thread whose memory is read, if it is not the current task */
	__u32 pad;
};
#else
/* Linux 6.2. Weak, so that a gadget's other programs load on older kernels. */
extern struct task_struct *bpf_task_from_pid(s32 pid) __ksym __weak;
extern void bpf_task_release(struct task_struct *task) __ksym __weak;
#endif

/* Maximum bytes that user_read_words() reads. */
#define USER_WORDS 14

/*
 * Reads once, without recording a failure. 0 or -errno. With USER_OF_OTHER_TASK it reads
 * the memory of the task fault->tid, and may sleep.
 */
static __always_inline long user_copy(struct user_fault *fault, void *to, __u32 bytes,
				      __u64 address)
{
#ifdef USER_OF_OTHER_TASK
	struct task_struct *task;
	long err;

	if (!bpf_task_from_pid)
		return -38; /* ENOSYS */
	/* Looked up each time, because a global function cannot take a task. */
	task = bpf_task_from_pid(fault->tid);
	if (!task)
		return -3; /* ESRCH */
	err = bpf_copy_from_user_task(to, bytes, (void *)address, task, 0);
	bpf_task_release(task);
	return err;
#else
	return bpf_probe_read_user(to, bytes, (void *)address);
#endif
}

/* Reads `bytes` at `address`; records a failure in `fault`. 0 or -errno. */
static __always_inline long user_read(struct user_fault *fault, void *to, __u32 bytes,
				      __u64 address)
{
	long err = user_copy(fault, to, bytes, address);

	if (err) {
		fault->address = address;
		fault->bytes = bytes;
		fault->count++;
	}
	return err;
}

/*
 * As user_read(), for `count` words, a constant, through the program's stack. With
 * CONFIG_HARDENED_USERCOPY, which distributions set, the kernel looks up the owner of any
 * other destination before it copies, which takes half as long as the read itself.
 */
static __always_inline long user_read_words(struct user_fault *fault, __u64 *to, __u32 count,
					    __u64 address)
{
	__u64 words[USER_WORDS];
	long err = user_read(fault, words, count * 8, address);

	if (!err)
		for (__u32 i = 0; i < count; i++)
			to[i] = words[i];
	return err;
}

#define USER_BYTES(byte) (0x0101010101010101ULL * (byte))

/*
 * Reads a NUL-terminated string, at most `most` bytes, a multiple of 8, and clears the
 * rest of the buffer. Returns the length with the NUL, `most` if it was truncated, or
 * -errno.
 */
static __always_inline long user_read_text(struct user_fault *fault, void *to, __u32 most,
					   __u64 address)
{
	__u64 *words = to;
	long length;

#ifdef USER_OF_OTHER_TASK
	__u32 page = 4096 - (address & 4095);
	__u64 alive = ~0ULL;

	length = user_copy(fault, to, most, address);
	/* It may end right before a page that is missing. */
	if (length && page < most)
		length = user_copy(fault, to, page, address);
	((char *)to)[most - 1] = 0;
	if (!length)
		length = 1;
	/* By words and without branches, because the verifier follows both sides of each.
	 * A failed read leaves zeroes. */
	for (__u32 i = 0; i < most / 8; i++) {
		__u64 word = words[i];
		/* Sets the highest bit of the first byte that is 0; higher bytes are garbage. */
		__u64 zero = (word - USER_BYTES(1)) & ~word & USER_BYTES(0x80);
		__u64 before = (((zero & -zero) >> 7) - 1) & alive;

		words[i] = word & before;
		length += ((before & USER_BYTES(1)) * USER_BYTES(1)) >> 56;
		alive &= -(before >> 63);
	}
#else
	for (__u32 i = 0; i < most / 8; i++)
		words[i] = 0;
	length = bpf_probe_read_user_str(to, most, (void *)address);
#endif
	if (length < 0) {
		fault->address = address;
		fault->bytes = 1;
		fault->count++;
	}
	return length;
}

/*
 * Faults the noted range in (first and last byte: a read may cross a page).
 * Sleepable programs only. 0: try again; -errno: not mapped.
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
