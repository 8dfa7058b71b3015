/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_MEMORY_RETURNS_H
#define GPU_GADGETS_MEMORY_RETURNS_H

#include "memory/calls.h"

/* returns: the return of a driver call that does not allocate: what it freed or changed. */

/* What was taken out at the entry is freed, or put back. */
static __always_inline void popped_returned(struct thread *t, const struct memory_api *api,
					    bool failed)
{
	if (failed && t->call.popped)
		call_undo_free(t, api);
	else if (t->call.popped)
		row_free(t->process, &t->call.live, false);
}

/* The end of a context, or the reset of a device. */
static __always_inline void owner_returned(struct thread *t, const struct memory_api *api,
					   bool failed)
{
	struct inflight *call = &t->call;
	struct primary *p;

	call_doom(t, api, failed ? DOOM_CLEAR : DOOM_FREE);
	if (is_op(api, MEMORY_DEVICE_RESET) && !call->c && !failed)
		drop(DROP_FREE_UNKNOWN);
	popped_returned(t, api, failed);
	if (failed)
		return;
	if (api->op == MEMORY_CTX_DESTROY) {
		if (!call->popped)
			drop(DROP_CONTEXT_BEFORE);
		context_destroyed(t, call->a);
	} else if (api->op == MEMORY_PRIMARY_RELEASE) {
		if (!primary_released(primary_of(t->process, call->a)))
			drop(DROP_CONTEXT_BEFORE);
	} else {
		p = primary_of(t->process, call->a);
		if (p)
			p->exists = 0; /* until it is retained again */
		if (is_op(api, MEMORY_PRIMARY_RESET) && primary_is_from_before(p))
			drop(DROP_CONTEXT_BEFORE);
	}
}

/* What ends something. False: it is another call. */
static __always_inline bool end_returned(struct thread *t, const struct memory_api *api,
					 bool failed)
{
	struct inflight *call = &t->call;

	switch (api->op) {
	case MEMORY_FREE:
		popped_returned(t, api, failed);
		if (!failed && !call->popped && call->a)
			drop(DROP_FREE_UNKNOWN);
		return true;
	case MEMORY_CTX_DESTROY:
	case MEMORY_PRIMARY_RESET:
	case MEMORY_PRIMARY_RELEASE:
	case MEMORY_DEVICE_RESET:
		owner_returned(t, api, failed);
		return true;
	}
	if (MEMORY_HELD && api->op == MEMORY_ADDRESS_FREE) {
		live_doom(t->process, call->a, call->b, call->serial,
			  failed ? DOOM_CLEAR : DOOM_FREE);
		return true;
	}
	return false;
}

/* Physical memory of another process has a handle here. */
static __always_inline void import_returned(struct thread *t, __u64 number)
{
	struct inflight *call = &t->call;
	struct live *foreign = &call->live;
	struct handle *handle = vmm_handle(t->process, number);
	struct live_key key;

	/* Released, and only mapped: the number is free, and this is other memory. */
	if (handle && handle->references) {
		__sync_fetch_and_add(&handle->references, 1);
		return;
	}
	/* What a process that is not known leaves would not be deleted. */
	if (!process_remember_current(t->process))
		return;
	vmm_key(&key, t->process, call->serial);
	__builtin_memset(foreign, 0, sizeof(*foreign));
	foreign->kind = KIND_VMM;
	foreign->serial = call->serial;
	foreign->references = 1;
	foreign->foreign = 1;
	foreign->handle = number;
	/* Without a handle its release would not be recognised. */
	if (!vmm_handle_made(t->process, number, call->serial) || live_add(&key, foreign))
		drop(DROP_LIVE_FULL);
}

/* A call about the device of a thread that needs no context. False: it is another call. */
static __always_inline bool device_returned(struct thread *t, const struct memory_api *api,
					    bool may_sleep)
{
	__u64 a = t->call.a;
	__u32 devices;

	if (is_op(api, MEMORY_DEVICE_COUNT)) {
		if (call_read(&devices, sizeof(devices), a, may_sleep))
			context_learn(t->process, DEVICES_OF_PROCESS, devices);
		return true;
	}
	if (is_op(api, MEMORY_DEVICE_SET)) {
		t->device_hint = a;
		return true;
	}
	if (is_op(api, MEMORY_DEVICE_OF)) {
		if (a)
			t->device_hint = context_device(t->process, a);
		if (t->device_hint == DEVICE_IS_HOST)
			t->device_hint = -1;
		return true;
	}
	return false;
}

/* A call about contexts or pools: where a thread allocates. */
static __always_inline void place_returned(struct thread *t, const struct memory_api *api,
					   bool may_sleep)
{
	struct inflight *call = &t->call;
	__u64 number = 0;

	switch (api->op) {
	case MEMORY_CTX_CREATE:
		if (call_read(&number, 8, call->a, may_sleep)) {
			context_learn(t->process, number, call->b);
			context_push(t, number);
		}
		break;
	case MEMORY_CTX_SET:
		context_set(t, call->a);
		break;
	case MEMORY_CTX_PUSH:
		context_push(t, call->a);
		break;
	case MEMORY_CTX_POP:
		context_pop(t);
		break;
	case MEMORY_PRIMARY_RETAIN:
		if (call_read(&number, 8, call->a, may_sleep))
			primary_retain(t->process, number, call->b);
		break;
	case MEMORY_POOL_CREATE:
		if (call_read(&number, 8, call->a, may_sleep))
			context_learn(
				t->process, number,
				call_location_device(t, call->b + LOCATION_OF_PROPS, may_sleep));
		break;
	case MEMORY_POOL_DEVICE:
		if (call_read(&number, 8, call->a, may_sleep))
			context_learn(t->process, number, call->b);
		break;
	default:
		if (is_op(api, MEMORY_POOL_LOCATION) && call_read(&number, 8, call->a, may_sleep))
			context_learn(t->process, number,
				      call_location_device(t, call->b, may_sleep));
	}
}

/* Return of a call that does not allocate. `failed`: it had no effect. */
static __noinline int call_returned(struct thread *t, __u32 id, bool failed, bool may_sleep)
{
	const struct memory_api *api;
	struct inflight *call;
	__u64 number = 0;

	if (!t)
		return 0;
	api = memory_api_of(id);
	call = &t->call;
	if (end_returned(t, api, failed))
		return 0;
	if (api->op == MEMORY_VMM_RETAIN) {
		if (!failed && call_read(&number, 8, call->a, may_sleep))
			vmm_retain(t->process, number, call->c);
		else if (call->c)
			vmm_unref(t->process, call->c);
		return 0;
	}
	if (failed || device_returned(t, api, may_sleep))
		return 0;
	switch (api->op) {
	case MEMORY_VMM_RELEASE:
		if (call->c)
			vmm_release(t->process, call->a, call->c);
		else
			drop(DROP_FREE_UNKNOWN);
		break;
	case MEMORY_VMM_MAP:
		vmm_map(t->process, call->a, call->b, call->c);
		break;
#ifndef LINUX_5_10
	case MEMORY_VMM_UNMAP:
		vmm_unmap(t->process, call->a, call->b);
		break;
#endif
	case MEMORY_VMM_IMPORT:
		if (call_read(&number, 8, call->a, may_sleep))
			import_returned(t, number);
		break;
	default:
		place_returned(t, api, may_sleep);
		break;
	}
	return 0;
}

#endif
