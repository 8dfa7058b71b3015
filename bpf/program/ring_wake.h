/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_PROGRAM_RING_WAKE_H
#define GPU_GADGETS_PROGRAM_RING_WAKE_H

/*
 * ring_wake: when the reader of a ring of events is woken. By default a ring wakes its
 * reader whenever that has caught up, which at 20,000 events a second is a context switch
 * on the traced thread's CPU for nearly each event. Instead user space has the reader
 * woken several times a second (ring_wake_all), and an event wakes it only when a quarter
 * of the ring is full, so that nothing is lost if user space is late.
 */
#ifdef LINUX_5_10
#define ring_submit(ring, event, seldom) bpf_ringbuf_submit(event, 0)
#else
#define ring_submit(ring, event, seldom)                                               \
	bpf_ringbuf_submit(event, !(seldom) ? 0 :                                       \
			   bpf_ringbuf_query(ring, BPF_RB_AVAIL_DATA) >                 \
				   bpf_ringbuf_query(ring, BPF_RB_RING_SIZE) / 4 ?      \
			   BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP)

/* Wakes the reader of a ring. If there is no room, events wake it. */
#define ring_wake(ring)                                                        \
	({                                                                     \
		void *nothing_ = bpf_ringbuf_reserve(ring, 8, 0);              \
		if (nothing_)                                                  \
			bpf_ringbuf_discard(nothing_, BPF_RB_FORCE_WAKEUP);    \
	})

/* The program that user space runs; a gadget has one for each of its rings. */
#define RING_WAKE_PROGRAM(first, second)                                        \
	SEC("syscall")                                                          \
	int ring_wake_all(void *ctx)                                            \
	{                                                                       \
		ring_wake(first);                                               \
		ring_wake(second);                                              \
		return 0;                                                       \
	}                                                                       \
	struct {                                                                \
		__uint(type, BPF_MAP_TYPE_PROG_ARRAY);                          \
		__uint(max_entries, 1);                                         \
		__uint(key_size, 4);                                            \
		__array(values, int(void *));                                   \
	} ring_wake_program SEC(".maps") = { .values = { [0] = &ring_wake_all } }
#endif

#endif
