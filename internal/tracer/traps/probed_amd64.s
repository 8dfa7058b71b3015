// SPDX-License-Identifier: Apache-2.0

#include "textflag.h"

// The kernel emulates both instructions of probed, as it does those that our probes of the
// driver are on: a trap takes one exception, and not a second one for a single step.
TEXT ·probed(SB), NOSPLIT|NOFRAME, $0-0
	BYTE $0x90 // nop; NOP is no instruction to this assembler
	RET

// func call(times int64)
TEXT ·call(SB), NOSPLIT, $8-8
	MOVQ times+0(FP), BX
loop:
	CALL ·probed(SB)
	DECQ BX
	JNZ  loop
	RET

// func address() uintptr
TEXT ·address(SB), NOSPLIT, $0-8
	LEAQ ·probed(SB), AX
	MOVQ AX, ret+0(FP)
	RET
