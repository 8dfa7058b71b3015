/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Contents of device memory. Linear copies and sets are really executed, so that a
 * program reads back what it wrote; kernels write nothing. A copy with an unallocated
 * address has no effect, because tests make calls with made-up addresses.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "state.h"

/* From this size on pages are given back to the kernel instead of being filled. */
#define BY_PAGES (1ull << 20)

/* The whole pages of a range. */
static void pages_of(uint64_t p, uint64_t n, uint64_t *from, uint64_t *to)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	*from = (p + page - 1) & ~(page - 1);
	*to = (p + n) & ~(page - 1);
}

/* Memory of the device that is there, all n bytes. */
static bool writable(uint64_t p, uint64_t n)
{
	if (!in_device_range(p))
		return vmm_covers(p, n);
	struct object *o = memory_at(p);
	if (!o || n > o->size - (p - o->ptr))
		return false;
	o->written = true;
	return true;
}

/* The kernel checks whether memory of the host is mapped. */
static void copy_checked(uint64_t to, uint64_t from, uint64_t n)
{
	struct iovec local = {(void *)from, n}, remote = {(void *)to, n};
	while (remote.iov_len) {
		ssize_t done = process_vm_writev(getpid(), &local, 1, &remote, 1, 0);
		if (done < 0 && (errno == EPERM || errno == ENOSYS)) /* a sandbox: as in reality */
			memmove(remote.iov_base, local.iov_base, local.iov_len);
		if (done <= 0)
			return;
		local.iov_base = (char *)local.iov_base + done;
		remote.iov_base = (char *)remote.iov_base + done;
		local.iov_len = remote.iov_len -= (size_t)done;
	}
}

void contents_copy(uint64_t to, uint64_t from, uint64_t n)
{
	bool to_device = writable(to, n), from_device = writable(from, n);
	if (!n || (in_device_range(to) && !to_device) || (in_device_range(from) && !from_device))
		return;
	if (to_device && from_device)
		memmove((void *)to, (void *)from, n);
	else
		copy_checked(to, from, n);
}

void contents_drop(uint64_t p, uint64_t n)
{
	uint64_t from, to;
	pages_of(p, n, &from, &to);
	if (from < to)
		madvise((void *)from, to - from, MADV_DONTNEED);
}

void contents_set(uint64_t p, uint32_t value, unsigned element_bytes, uint64_t n)
{
	uint64_t bytes = n * element_bytes;
	if (!bytes || !writable(p, bytes))
		return;
	if (!value && bytes >= BY_PAGES) { /* pages that are not there are zero */
		uint64_t from, to;
		pages_of(p, bytes, &from, &to);
		contents_drop(p, bytes);
		memset((void *)p, 0, from - p);
		memset((void *)to, 0, p + bytes - to);
		return;
	}
	switch (element_bytes) {
	case 1:
		memset((void *)p, (int)value, n);
		break;
	case 2:
		for (uint64_t i = 0; i < n; i++)
			((uint16_t *)p)[i] = (uint16_t)value;
		break;
	default:
		for (uint64_t i = 0; i < n; i++)
			((uint32_t *)p)[i] = value;
	}
}
