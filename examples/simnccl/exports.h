/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIMNCCL_EXPORTS_H
#define SIMNCCL_EXPORTS_H

#include "state.h"

/* Begins the definition of ncclX, which is also exported as pncclX. Each entry begins with
 * endbr64, as the real ones do, so that a probe costs the same. */
#define NCCL(symbol)                                                                        \
	__asm__(".globl pnccl" #symbol "\n.set pnccl" #symbol ", nccl" #symbol "\n"         \
		".type pnccl" #symbol ", STT_FUNC\n");                                     \
	__attribute__((visibility("default"))) ncclResult_t nccl##symbol

#endif
