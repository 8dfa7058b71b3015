/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_PROGRAM_RING_H
#define GPU_GADGETS_PROGRAM_RING_H

/*
 * ring: the least size of a ring buffer, in bytes. The kernel makes one only of a power of two of
 * whole pages (ringbuf_map_alloc() in kernel/bpf/ringbuf.c), and arm64 has pages of up to 64 KiB.
 * With pages of 4 KiB it takes 60 KiB more than the kernel's own least size.
 */
#define LEAST_RING (64 * 1024)

#endif
