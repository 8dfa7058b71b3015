// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause)
//
// nccl_trace: what every rank has issued to its communicators, how far each has come,
// and on which line of Python.
//
// Enter probes note an operation in its communicator; exit probes see whether NCCL took
// it, and take the stack. Waits of the CUDA driver tell what is done. User space reads
// the rows and compares the ranks; see gadget.yaml for every field.

#include <vmlinux.h>

#include <asm-generic/errno.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#define GADGET_NO_BUF_RESERVE
#include <gadget/buffer.h>
#include <gadget/common.h>
#include <gadget/macros.h>
#include <gadget/mntns_filter.h>
#include <gadget/types.h>

#define WITH_QUOTAS /* process/quota.h */

#include "call/probes.h"
#include "nccl/inflight.h"

#include "call/backward_probes.h"
#include "call/capture.h"
#include "nccl/returns.h"
#include "python/python.h"

/* NCCL is a library of its own, or part of PyTorch's. */
#define X(symbol, ...)                                                                       \
	{ "libnccl", "nccl" #symbol, API_nccl##symbol, ATTACH_EXIT },                        \
	{ "libnccl", "pnccl" #symbol, API_nccl##symbol, ATTACH_EXIT },                       \
	{ "libtorch_cuda", "nccl" #symbol, API_nccl##symbol, ATTACH_EXIT },                  \
	{ "libtorch_cuda", "pnccl" #symbol, API_nccl##symbol, ATTACH_EXIT },
#define Y(symbol, ...) { "libcuda", #symbol, API_##symbol, ATTACH_EXIT },
#define D(symbol, ...) \
	{ "libcuda", #symbol, API_##symbol, ATTACH_EXIT | ATTACH_FACT(FACT_DEVICE) },
/* AMD's RCCL has NCCL's functions, and HIP shows what is done. */
#ifndef LINUX_5_10
#define R(symbol, ...)                                                                      \
	{ "librccl", "nccl" #symbol, API_nccl##symbol, ATTACH_EXIT },                       \
	{ "librccl", "pnccl" #symbol, API_nccl##symbol, ATTACH_EXIT },
#define RY(symbol, ...) { "libamdhip64", #symbol, API_##symbol, ATTACH_EXIT },
#define RD(symbol, ...) \
	{ "libamdhip64", #symbol, API_##symbol, ATTACH_EXIT | ATTACH_FACT(FACT_DEVICE) },
#define RCCL_POINTS \
	NCCL_APIS(R) RCCL_APIS(R) RCCL_HIP_PROBED_APIS(RY) RCCL_HIP_DEMAND_APIS(RD)
#else
#define RCCL_POINTS
#endif
const struct attach_point attach_points[] ATTACH_POINTS = {
	NCCL_APIS(X) NCCL_CUDA_PROBED_APIS(Y) NCCL_CUDA_DEMAND_APIS(D) RCCL_POINTS
};
#undef X
#undef Y
#undef D

#ifndef LINUX_5_10
const struct attach_point backward_attach_points[] ATTACH_POINTS = { BACKWARD_POINT };
BACKWARD_PROGRAMS
#endif

static __always_inline int enter(struct pt_regs *ctx, struct thread *t, __u32 api)
{
	nccl_enter(ctx, t, api);
	return 0;
}

static __always_inline int leave(struct pt_regs *ctx, bool may_sleep)
{
	struct thread *t = thread_known();
	__u64 sp = PT_REGS_SP(ctx);
	__u32 result = PT_REGS_RC(ctx);

	if (!t || context_answer(ctx, t, may_sleep))
		return 0;
	if (!t->call.sp || sp < RETURNED_SP(t->call.sp))
		return 0; /* no call of ours, or a nested one */
	if (sp > RETURNED_SP(t->call.sp))
		drop(DROP_INFLIGHT_STALE); /* longjmp: the next call of that rank shows it */
	else if (t->call.seq)
		operation_leave(t, result, take_stack(ctx, t, t->call.ip, may_sleep));
	else
		nccl_returned(t, result, may_sleep);
	t->call.sp = 0;
	return 0;
}

#define X(symbol, ...) STOCK_PROBES(libnccl, nccl##symbol)
NCCL_APIS(X)
#undef X
#define X(symbol, ...) STOCK_PROBES(libcuda, symbol)
NCCL_CUDA_PROBED_APIS(X)
#undef X
#define X(symbol, ...) DEMAND_PROBE(symbol)
NCCL_CUDA_DEMAND_APIS(X)
#undef X

#ifdef LINUX_5_10
/* There are no cookies: our attach operator, too, takes a program for each point. The
 * order is that of attach_points. */
#define NCCL_POINTS_OF_ONE 4
#define X(symbol, ...)                                            \
	[(API_nccl##symbol - 1) * 4] = &enter_nccl##symbol,       \
	[(API_nccl##symbol - 1) * 4 + 1] = &enter_nccl##symbol,   \
	[(API_nccl##symbol - 1) * 4 + 2] = &enter_nccl##symbol,   \
	[(API_nccl##symbol - 1) * 4 + 3] = &enter_nccl##symbol,
#define Y(symbol, ...) [API_##symbol - 1 + 3 * (API_cuStreamSynchronize - 1)] = &enter_##symbol,
#define POINT_COUNT (NCCL_API_COUNT - 1 + 3 * (API_cuStreamSynchronize - 1))
#define POINTS NCCL_APIS(X) NCCL_CUDA_APIS(Y)
ATTACH_PROGRAMS_OF_POINTS(POINT_COUNT, POINTS, stock_exit);
#undef X
#undef Y
#endif

#include "call/life.h"
#include "nccl/rows.h"

DROPS_DATA_SOURCE

char LICENSE[] SEC("license") = "Dual BSD/GPL";
