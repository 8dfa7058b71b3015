/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_NCCL_CALLS_H
#define GPU_GADGETS_NCCL_CALLS_H

#include "nccl/operations.h"

#define HIP_DEVICE_TO_HOST 2 /* of hipMemcpyKind; 0: host to host, 1: host to device */

/*
 * calls: follows a call of NCCL, or a wait in the driver, from its entry to its return.
 * Only the outermost call of a thread counts: calls that NCCL makes to its own exports,
 * or to the driver, are nested.
 */

/* Stores the arguments of an NCCL call that is not an operation. */
static __always_inline void call_note(struct pt_regs *ctx, struct thread *t, __u32 op,
				      const struct nccl_arguments *args)
{
	struct inflight *call = &t->call;
	const __u64 *v = args->value;

	call->communicator = v[0];
	call->a = v[0];
	call->b = v[1];
	switch (op) {
	case NCCL_INIT_RANK:
	case NCCL_INIT_SCALABLE:
	case NCCL_SPLIT:
	case NCCL_SHRINK:
		__builtin_memset(&call->created, 0, sizeof(call->created));
		call->created.address = v[0];
		call->created.device = -1;
		break;
	case NCCL_INIT_ALL:
		call->stream = v[2]; /* the devices */
		break;
	case NCCL_ASYNC_ERROR:
	case NCCL_USER_RANK:
	case NCCL_USER_COUNT:
	case NCCL_USER_DEVICE:
		call->a = v[1];
		break;
	}
	switch (op) {
	case NCCL_INIT_RANK:
#if defined(__TARGET_ARCH_x86)
		create_rank(t, unique_id_at(ctx), v[2], v[1],
			    call->api == API_ncclCommInitRankConfig ? v[3] : 0);
#else
		create_rank(t, unique_id_at(ctx), v[3], v[1],
			    call->api == API_ncclCommInitRankConfig ? v[4] : 0);
#endif
		break;
	case NCCL_INIT_SCALABLE:
		create_rank(t, v[4], v[2], v[1], v[5]);
		break;
	case NCCL_SPLIT:
		call->created.address = v[3];
		call->created.color = v[1];
		call->created.key = v[2];
		call->created.rank = call->created.size = -1;
		config_name(call->created.name, v[4]);
		break;
	case NCCL_SHRINK:
		call->created.address = v[3];
		call->created.rank = call->created.size = -1;
		call->b = v[2];
		config_name(call->created.name, v[4]);
		create_excluded(t, v[1]);
		break;
	}
	if (op == NCCL_INIT_RANK || op == NCCL_INIT_SCALABLE || op == NCCL_SPLIT)
		creating_begins(t, op == NCCL_SPLIT);
}

/*
 * hipMemcpyWithStream waits for its stream if it copies bytes from or to the host: to, from, bytes,
 * hipMemcpyKind, stream. Between devices, which hipMemcpyDefault may mean, it returns at once.
 */
static __always_inline bool hip_copy_waits(const struct nccl_arguments *args)
{
	return args->value[2] && (__u32)args->value[3] <= HIP_DEVICE_TO_HOST;
}

/* A copy that waits for nothing: of no bytes, the third argument of all, or of HIP's within a device. */
static __always_inline bool copy_returns_at_once(const struct nccl_arguments *args, __u32 op)
{
	if (op == HIP_COPY_WAIT)
		return !hip_copy_waits(args);
	return (op == CUDA_COPY || op == CUDA_COPY_WAIT) && !args->value[2];
}

/* A call of the driver, whose arguments are in `call`: a wait, or what has to do with streams. */
static __always_inline void driver_enter(struct thread *t, __u64 process,
					 const struct nccl_api *api)
{
	__u32 tid = bpf_get_current_pid_tgid();
	struct inflight *call = &t->call;
	__s32 device;

	switch (api->op) {
	case CUDA_STREAM_WAIT:
	case HIP_COPY_WAIT:
	case CUDA_COPY_WAIT:
		call->stream = nccl_stream_key(t, call->a, api->per_thread);
		stream_pending(process, call->stream, call->enter_boot_ns, tid);
		break;
	case CUDA_COPY:
		call->stream = nccl_stream_key(t, call->a, api->per_thread);
		stream_copies(process, call->stream, call->enter_boot_ns, tid);
		break;
	case CUDA_STREAM_QUERY:
	case CUDA_STREAM_AFTER:
		call->stream = nccl_stream_key(t, call->a, api->per_thread);
		break;
	case CUDA_EVENT_RECORD:
		call->stream = nccl_stream_key(t, call->b, api->per_thread);
		break;
	case CUDA_CAPTURE:
		call->stream = nccl_stream_key(t, call->a, api->per_thread);
		break;
	case CUDA_CAPTURED: /* also if the capture has become invalid, which is an error */
		stream_capture(t, nccl_stream_key(t, call->a, api->per_thread), 0);
		break;
	case CUDA_EVENT_WAIT:
		event_pending(process, call->a, tid);
		break;
	case CUDA_CONTEXT_WAIT:
		call->stream = call->a ?: context_current(t, &device);
		context_pending(process, call->stream, call->enter_boot_ns, tid);
		break;
	}
}

/* Entry of API `id`. Runs in programs that may not sleep. */
static __always_inline void nccl_enter(struct pt_regs *ctx, struct thread *t, __u32 id)
{
	const struct nccl_api *api = nccl_api_of(id);
	struct nccl_arguments args;
	struct inflight *call;
	__u64 sp = PT_REGS_SP(ctx), process;

	if (!api->op)
		return;
	process = t ? t->process : process_id_of(task_current());
	if (api->op > NCCL_CUDA && api->op <= CUDA_CONTEXT_WAIT && !nccl_process_known(process))
		return; /* a wait of a program without NCCL */
	if (!t)
		t = thread_current(process, true);
	if (!t) {
		drop(DROP_SCRATCH);
		return;
	}
	if (nccl_answers_device(id)) {
		context_ask(ctx, t);
		return;
	}
	t->device_sp = 0;
	call = &t->call;
	if (call->sp && sp < call->sp)
		return; /* nested */
	nccl_arguments(ctx, &args, nccl_is_operation(api->op));
	if (copy_returns_at_once(&args, api->op))
		return;
	if (call->sp) {
		if (sp == call->sp && id == call->api && args.value[0] == call->first)
			return; /* one file, probed through two paths */
		drop(DROP_INFLIGHT_STALE);
	}
	call->sp = sp;
	call->ip = PT_REGS_IP(ctx);
	call->api = id;
	call->first = args.value[0];
	call->seq = 0;
	call->enter_boot_ns = bpf_ktime_get_boot_ns();
	if (nccl_is_operation(api->op)) {
		call->communicator = args.value[api->comm & 15];
		call->stream = nccl_stream_key(t, args.value[api->stream & 15], false);
		operation_enter(t, &args);
		return;
	}
	if (api->op < NCCL_CUDA) {
		call_note(ctx, t, api->op, &args);
		return;
	}
	call->a = args.value[api->comm & 15];
	call->b = args.value[api->count & 15];
	driver_enter(t, process, api);
}

#endif
