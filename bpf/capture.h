/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_CAPTURE_H
#define GPU_GADGETS_CAPTURE_H

#include "native.h"
#include "stack_store.h"
#include "thread.h"

/*
 * capture: the current thread's stack, remembered by its id: a thread often
 * allocates twice from the same place.
 */

/* Stores t->stack, if it is new. 0: there was no room. */
static __noinline __u64 capture_store(struct thread *t)
{
	__u64 id;

	if (!t)
		return 0;
	id = stack_hash(&t->stack);
	if (id == t->stack_id)
		return id;
	id = stack_store(&t->stack, id);
	if (id)
		t->stack_id = id;
	return id;
}

#endif
