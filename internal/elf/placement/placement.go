// SPDX-License-Identifier: Apache-2.0

// Package placement chooses the instruction of a function on which a uprobe is
// cheap. The kernel emulates a few instructions; any other it must single-step
// out of line, which costs a second trap, and in a virtual machine many times
// that. The functions of libcuda.so start with a comparison, which is stepped,
// and a conditional jump, which is emulated and sees the same arguments.
package placement

import (
	"debug/elf"

	"golang.org/x/arch/x86/x86asm"
)

// Window is how many bytes of code Offset reads. Probes go into the first
// few; the rest shows jumps back to them.
const Window = 256

// maxOffset bounds how far from the entry a probe may go. The prologues for
// which moving pays (libcuda's has 10 bytes) are shorter.
const maxOffset = 24

// cost is how a kernel executes a probed instruction.
type cost int

const (
	stepped  cost = iota // single-stepped out of line
	newer                // emulated by newer kernels only
	emulated             // emulated by every kernel since 4.18
)

// Offset returns where to probe the function that starts with code: the first
// instruction that the kernel emulates, provided that every call passes it
// exactly once with the arguments, the stack pointer and the return address
// still as at the entry. Otherwise 0, the entry.
//
// On arm64 it is always 0, for two reasons. A function may begin by signing its
// return address (paciasp); behind that, a return probe would replace it by one that
// is not signed, and the process would die. And libcuda's entries begin with adrp,
// which every kernel emulates (535.261: all of the 52 functions that are probed).
//
// A return probe works at the same offset: it replaces the return address,
// which is still at the top of the stack.
func Offset(machine elf.Machine, code []byte) uint64 {
	if machine != elf.EM_X86_64 {
		return 0
	}
	if len(code) > Window {
		code = code[:Window]
	}
	firstTarget := lowestJumpTarget(code)
	best, bestCost := 0, stepped
	for at := 0; at < len(code) && at <= maxOffset; {
		// A loop that comes back to at, or to what leads to it, would count
		// one call several times. The entry itself is where a call arrives.
		if at > 0 && firstTarget <= at {
			break
		}
		c := costOf(code[at:])
		if c > bestCost {
			best, bestCost = at, c
		}
		if bestCost == emulated {
			break
		}
		n, harmless := passable(code[at:])
		if !harmless {
			break
		}
		at += n
	}
	return uint64(best)
}

// costOf says how kernels execute an instruction: branch_setup_xol_ops() and
// push_setup_xol_ops() in arch/x86/kernel/uprobes.c.
// endbr64 is not among them (measured on 6.18), so a probe is better behind it.
func costOf(b []byte) cost {
	if endbr64(b) {
		return stepped
	}
	if len(b) >= 2 && b[0] == 0x41 && b[1]&^7 == 0x50 {
		return emulated // push %r8 … %r15: exactly this prefix
	}
	switch op := b[0]; {
	case op == 0x90, op&^7 == 0x50: // nop; push %rax … %rdi
		return emulated
	case op == 0xe8, op == 0xe9: // call, jmp with 32 bits
		return whole(b, 5)
	case op == 0xeb, op&0xf0 == 0x70: // jmp, jcc with 8 bits
		return whole(b, 2)
	case op == 0x0f && len(b) >= 2 && b[1]&0xf0 == 0x80: // jcc with 32 bits
		return whole(b, 6)
	}
	if inst, err := x86asm.Decode(b, 64); err == nil && inst.Op == x86asm.NOP {
		return newer // nop of several bytes: 6.18
	}
	return stepped
}

func whole(b []byte, n int) cost {
	if len(b) < n {
		return stepped
	}
	return emulated
}

func endbr64(b []byte) bool {
	return len(b) >= 4 && b[0] == 0xf3 && b[1] == 0x0f && b[2] == 0x1e && b[3] == 0xfa
}

// passable returns the length of an instruction, and whether a probe may be
// behind it: it always falls through, and writes at most a register that is
// neither the stack pointer nor an argument. Only the few instructions are
// listed with which compilers begin functions.
func passable(b []byte) (int, bool) {
	if endbr64(b) {
		return 4, true
	}
	inst, err := x86asm.Decode(b, 64)
	if err != nil {
		return 0, false
	}
	switch inst.Op {
	case x86asm.CMP, x86asm.TEST, x86asm.NOP:
		return inst.Len, true
	case x86asm.MOV, x86asm.MOVZX, x86asm.MOVSXD, x86asm.LEA, x86asm.XOR:
		r, isReg := inst.Args[0].(x86asm.Reg)
		return inst.Len, isReg && scratch(r)
	}
	return 0, false
}

// scratch: a function may be probed after this register was written. Of the
// caller-saved ones it is those without an argument (System V ABI for x86-64,
// section 3.2.3). %rbp is left out: stacks may be walked with it.
func scratch(r x86asm.Reg) bool {
	switch r {
	case x86asm.EAX, x86asm.RAX, x86asm.R10L, x86asm.R10, x86asm.R11L, x86asm.R11:
		return true
	}
	return false
}

// lowestJumpTarget returns the lowest offset above 0 that a direct jump in code
// leads to. Bytes that do not decode end the search of what can be seen.
func lowestJumpTarget(code []byte) int {
	lowest := len(code) + 1
	for at := 0; at < len(code); {
		if endbr64(code[at:]) {
			at += 4
			continue
		}
		inst, err := x86asm.Decode(code[at:], 64)
		if err != nil || inst.Len == 0 {
			break
		}
		at += inst.Len
		if rel, ok := inst.Args[0].(x86asm.Rel); ok {
			if to := at + int(rel); to > 0 && to < lowest {
				lowest = to
			}
		}
	}
	return lowest
}
