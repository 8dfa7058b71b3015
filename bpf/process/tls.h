/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_PROCESS_TLS_H
#define GPU_GADGETS_PROCESS_TLS_H

/*
 * tls: where a thread of a traced process has a thread-local variable of a library, in the
 * tables of glibc (sysdeps/{x86_64,aarch64}/nptl/tls.h and dl-tlsdesc.h of glibc 2.17 to
 * 2.42). For the current thread only. Not for LINUX_5_10: a task is read in place.
 */

/* How the variable's address is found. Go mirror: operators/attach/spans. */
enum tls_access {
	TLS_STATIC = 1, /* at: offset from the thread pointer */
	TLS_OFFSET,	/* at: address of a word with that offset (TPOFF64, TPREL) */
	TLS_INDEX,	/* at: address of {module, offset} (DTPMOD64, DTPMOD) */
	TLS_DESCRIPTOR, /* at: address of {function, argument} (TLSDESC) */
};

#define TLS_OFFSET_BESIDE (~0ULL) /* the second of the two words has the offset */

#if defined(__TARGET_ARCH_arm64)
#define TLS_TP(task) ((task)->thread.uw.tp_value)
#define TLS_DTV_AT 0 /* tcbhead_t.dtv */
#else
#define TLS_TP(task) ((task)->thread.fsbase)
#define TLS_DTV_AT 8
#endif
/* dtv_t: {value, what to free}. dtv[-1].counter is the number of entries. */
#define TLS_DTV_SLOT 16
#define TLS_DTV_NONE (~0ULL) /* TLS_DTV_UNALLOCATED: the thread has not used it yet */
/* A descriptor's argument is an offset from the thread pointer, or an address. No
 * static block is that large, and nothing is mapped that low (vm.mmap_min_addr). */
#define TLS_STATIC_LOWEST (-(1LL << 30))
#define TLS_STATIC_HIGHEST 65536LL

static __always_inline long tls_copy(void *to, __u32 bytes, __u64 address, bool may_sleep)
{
	long err = bpf_probe_read_user(to, bytes, (void *)address);

	if (err && may_sleep)
		err = bpf_copy_from_user(to, bytes, (void *)address);
	return err;
}

/* The address of a module's variable in the thread; 0: it has none yet. -errno. */
static __always_inline long tls_in_module(__u64 *address, __u64 tp, __u64 module, __u64 offset,
					  bool may_sleep)
{
	__u64 dtv, count, block;

	*address = 0;
	if (tls_copy(&dtv, sizeof(dtv), tp + TLS_DTV_AT, may_sleep) ||
	    tls_copy(&count, sizeof(count), dtv - TLS_DTV_SLOT, may_sleep))
		return -EFAULT;
	/* The table grows when the thread first uses a newer module. */
	if (!module || module > count)
		return 0;
	if (tls_copy(&block, sizeof(block), dtv + module * TLS_DTV_SLOT, may_sleep))
		return -EFAULT;
	if (block && block != TLS_DTV_NONE)
		*address = block + offset;
	return 0;
}

/*
 * The address of the variable in the thread whose pointer is `tp`; 0: none yet. -errno.
 * `offset` is for TLS_INDEX, unless it is TLS_OFFSET_BESIDE.
 */
static __always_inline long tls_address(__u64 *address, __u32 access, __u64 at, __u64 offset,
					__u64 tp, bool may_sleep)
{
	__u64 word[2];

	*address = 0;
	switch (access) {
	case TLS_STATIC:
		*address = tp + at;
		return 0;
	case TLS_OFFSET:
		if (tls_copy(word, 8, at, may_sleep))
			return -EFAULT;
		*address = tp + word[0];
		return 0;
	case TLS_INDEX:
		if (tls_copy(word, 16, at, may_sleep))
			return -EFAULT;
		if (offset != TLS_OFFSET_BESIDE)
			word[1] = offset;
		return tls_in_module(address, tp, word[0], word[1], may_sleep);
	case TLS_DESCRIPTOR:
		if (tls_copy(word, 16, at, may_sleep))
			return -EFAULT;
		if (!word[1])
			return 0; /* not relocated yet */
		if ((__s64)word[1] > TLS_STATIC_LOWEST && (__s64)word[1] < TLS_STATIC_HIGHEST) {
			*address = tp + word[1];
			return 0;
		}
		if (tls_copy(word, 16, word[1], may_sleep))
			return -EFAULT;
		return tls_in_module(address, tp, word[0], word[1], may_sleep);
	}
	return -EINVAL;
}

#endif
