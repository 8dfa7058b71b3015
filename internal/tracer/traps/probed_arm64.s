// SPDX-License-Identifier: Apache-2.0

#include "textflag.h"

// The kernel simulates NOP.
TEXT ·probed(SB), NOSPLIT|NOFRAME, $0-0
	NOOP
	RET

// func call(times int64)
TEXT ·call(SB), NOSPLIT, $16-8
	MOVD times+0(FP), R19
loop:
	CALL ·probed(SB)
	SUBS $1, R19
	BNE  loop
	RET

// func address() uintptr
TEXT ·address(SB), NOSPLIT, $0-8
	MOVD $·probed(SB), R0
	MOVD R0, ret+0(FP)
	RET
