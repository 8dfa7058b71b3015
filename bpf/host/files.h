/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_HOST_FILES_H
#define GPU_GADGETS_HOST_FILES_H

/*
 * files: the file that a system call works on. Numbers of system calls: Linux's
 * arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h.
 */
#if defined(__TARGET_ARCH_x86)
enum host_syscall {
	HOST_READ = 0, HOST_WRITE = 1, HOST_OPEN = 2, HOST_CLOSE = 3, HOST_FSTAT = 5,
	HOST_LSEEK = 8, HOST_MMAP = 9, HOST_IOCTL = 16, HOST_PREAD = 17, HOST_PWRITE = 18,
	HOST_READV = 19, HOST_WRITEV = 20, HOST_FSYNC = 74, HOST_FADVISE = 221,
	HOST_OPENAT = 257, HOST_PREADV = 295, HOST_PWRITEV = 296, HOST_PREADV2 = 327,
	HOST_OPENAT2 = 437,
};
/* uretprobe and uprobe: the system calls that the return and the entry of a probed function are. */
#define HOST_IS_PROBE(number) ((number) == 335 || (number) == 336)
static __always_inline __u64 host_argument(struct pt_regs *regs, int n)
{
	switch (n) {
	case 0: return regs->di;
	case 1: return regs->si;
	case 2: return regs->dx;
	case 4: return regs->r8;
	}
	return 0;
}
#else
enum host_syscall {
	HOST_IOCTL = 29, HOST_OPENAT = 56, HOST_CLOSE = 57, HOST_LSEEK = 62, HOST_READ = 63,
	HOST_WRITE = 64, HOST_READV = 65, HOST_WRITEV = 66, HOST_PREAD = 67, HOST_PWRITE = 68,
	HOST_PREADV = 69, HOST_PWRITEV = 70, HOST_FSTAT = 80, HOST_FSYNC = 82,
	HOST_MMAP = 222, HOST_FADVISE = 223, HOST_PREADV2 = 286, HOST_OPENAT2 = 437,
	HOST_OPEN = -2, /* arm64 has none */
};
#define HOST_IS_PROBE(number) false /* arm64 has no such calls */
static __always_inline __u64 host_argument(struct pt_regs *regs, int n)
{
	switch (n) {
	case 0: return regs->orig_x0;
	case 1: return regs->regs[1];
	case 2: return regs->regs[2];
	case 4: return regs->regs[4];
	}
	return 0;
}
#endif

/* The file descriptor among a call's arguments; -1: none that is resolved. */
static __always_inline __s32 host_fd(struct pt_regs *regs, __s32 number)
{
	switch (number) {
	case HOST_READ: case HOST_WRITE: case HOST_CLOSE: case HOST_FSTAT: case HOST_LSEEK:
	case HOST_IOCTL: case HOST_PREAD: case HOST_PWRITE: case HOST_READV: case HOST_WRITEV:
	case HOST_FSYNC: case HOST_FADVISE: case HOST_PREADV: case HOST_PWRITEV: case HOST_PREADV2:
		return host_argument(regs, 0);
	case HOST_MMAP:
		return host_argument(regs, 4);
	}
	return -1;
}

/* Address of a call's path; 0: it has none. */
static __always_inline __u64 host_path(__s32 number, const __u64 *arguments)
{
	if (number == HOST_OPENAT || number == HOST_OPENAT2)
		return arguments[1];
	return number == HOST_OPEN ? arguments[0] : 0;
}

/* Bytes that a call read, wrote or mapped. */
static __always_inline __u64 host_bytes(__s32 number, __u64 length, __s64 result)
{
	switch (number) {
	case HOST_READ: case HOST_WRITE: case HOST_PREAD: case HOST_PWRITE: case HOST_READV:
	case HOST_WRITEV: case HOST_PREADV: case HOST_PWRITEV: case HOST_PREADV2:
		return result > 0 ? result : 0;
	case HOST_MMAP: /* errors are the last 4095 addresses */
		return (__u64)result < -4095ULL ? length : 0;
	}
	return 0;
}

/* Writes the name of an open file without its directory; empty if it has none, such as a
 * pipe. It is read from the current task's table: only its threads can change it
 * meanwhile, in which case the name may be another file's. */
static __always_inline void host_file(char *to, struct task_struct *task, __s32 fd)
{
	struct fdtable *table = BPF_CORE_READ(task, files, fdt);
	const unsigned char *name;
	struct file **files, *file;

	if (!table || (__u32)fd >= BPF_CORE_READ(table, max_fds))
		return;
	files = BPF_CORE_READ(table, fd);
	if (bpf_probe_read_kernel(&file, sizeof(file), files + fd) || !file)
		return;
	name = BPF_CORE_READ(file, f_path.dentry, d_name.name);
	if (name)
		bpf_probe_read_kernel_str(to, HOST_FILE_BYTES, name);
}

#endif
