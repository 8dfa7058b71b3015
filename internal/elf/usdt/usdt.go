// SPDX-License-Identifier: Apache-2.0

// Package usdt reads where the arguments of a statically defined probe are: operands in
// the assembler's notation, which the compiler left in a note of the library. They come
// from a file of the observed process and may have any content: other operands are an
// error, and nothing but registers, constants and user memory can be requested.
package usdt

import (
	"debug/elf"
	"fmt"
	"strconv"
	"strings"
)

// Kind says where an argument is. The values are those of enum usdt_kind (bpf/call/usdt.h).
type Kind uint8

const (
	Constant Kind = iota + 1 // Value
	Register                 // Base
	Memory                   // at Base + Value + Index << Shift
)

// NoIndex is the Index of memory at a register alone.
const NoIndex = 0xffff

// MaxArguments of a probe.
const MaxArguments = 8

// Argument is one of a probe. Registers are identified by their offset in struct pt_regs.
type Argument struct {
	Kind        Kind
	Value       int64
	Base, Index uint16
	Shift       uint8
	// Bytes is 1, 2, 4 or 8.
	Bytes  uint8
	Signed bool
}

// Parse reads operands such as "4@-44(%rbp) -4@%eax 8@$5" (x86-64) or
// "4@[sp, 60] 8@x0" (arm64): bytes of each, negative where it is signed.
func Parse(machine elf.Machine, text string) ([]Argument, error) {
	var operand func(string, *Argument) error
	switch machine {
	case elf.EM_X86_64:
		operand = operandX86
	case elf.EM_AARCH64:
		operand = operandARM
	default:
		return nil, fmt.Errorf("probes of %v are not known", machine)
	}
	var out []Argument
	for _, word := range words(text) {
		if len(out) == MaxArguments {
			return nil, fmt.Errorf("more than %d arguments", MaxArguments)
		}
		size, where, ok := strings.Cut(word, "@")
		n, err := strconv.ParseInt(size, 10, 8)
		if !ok || err != nil {
			return nil, fmt.Errorf("argument %.40q: want bytes@operand", word)
		}
		a := Argument{Signed: n < 0, Index: NoIndex}
		if n < 0 {
			n = -n
		}
		if n != 1 && n != 2 && n != 4 && n != 8 {
			return nil, fmt.Errorf("argument %.40q: of %d bytes", word, n)
		}
		a.Bytes = uint8(n)
		if err := operand(where, &a); err != nil {
			return nil, fmt.Errorf("argument %.40q: %w", word, err)
		}
		out = append(out, a)
	}
	return out, nil
}

// words splits at spaces that are in no brackets.
func words(text string) (out []string) {
	depth, begin := 0, -1
	for i := 0; i <= len(text); i++ {
		switch {
		case i == len(text) || text[i] == ' ' && depth == 0:
			if begin >= 0 {
				out = append(out, text[begin:i])
			}
			begin = -1
			continue
		case text[i] == '[' || text[i] == '(':
			depth++
		case text[i] == ']' || text[i] == ')':
			depth--
		}
		if begin < 0 {
			begin = i
		}
	}
	return out
}

// number reads a constant of the assembler: decimal, or hexadecimal with 0x.
func number(text string) (int64, error) {
	if n, err := strconv.ParseInt(text, 0, 64); err == nil {
		return n, nil
	}
	n, err := strconv.ParseUint(text, 0, 64) // a mask, such as 0xffffffffffffffff
	if err != nil {
		return 0, fmt.Errorf("%.40q is no number", text)
	}
	return int64(n), nil
}

// operandX86: $5, %rax, -44(%rbp), 8(%rax,%rcx,4).
func operandX86(text string, a *Argument) (err error) {
	if rest, ok := strings.CutPrefix(text, "$"); ok {
		a.Kind = Constant
		a.Value, err = number(rest)
		return err
	}
	if strings.HasPrefix(text, "%") {
		a.Kind = Register
		a.Base, err = registerX86(text)
		return err
	}
	a.Kind = Memory
	offset, rest, ok := strings.Cut(text, "(")
	inside, ok2 := strings.CutSuffix(rest, ")")
	if !ok || !ok2 {
		return fmt.Errorf("is no operand that is known")
	}
	if offset != "" {
		if a.Value, err = number(offset); err != nil {
			return err
		}
	}
	part := strings.Split(inside, ",")
	if a.Base, err = registerX86(strings.TrimSpace(part[0])); err != nil || len(part) == 1 {
		return err
	}
	if a.Index, err = registerX86(strings.TrimSpace(part[1])); err != nil || len(part) == 2 {
		return err
	}
	if len(part) > 3 {
		return fmt.Errorf("has too many parts")
	}
	scale := strings.TrimSpace(part[2])
	shift := strings.Index("1 2 4 8", scale)
	if len(scale) != 1 || scale == " " || shift < 0 {
		return fmt.Errorf("scale %.40q", scale)
	}
	a.Shift = uint8(shift / 2)
	return nil
}

// registersX86 are in the order of struct pt_regs, of 8 bytes each.
var registersX86 = [][]string{
	{"r15", "r15d", "r15w", "r15b"}, {"r14", "r14d", "r14w", "r14b"},
	{"r13", "r13d", "r13w", "r13b"}, {"r12", "r12d", "r12w", "r12b"},
	{"rbp", "ebp", "bp", "bpl"}, {"rbx", "ebx", "bx", "bl"},
	{"r11", "r11d", "r11w", "r11b"}, {"r10", "r10d", "r10w", "r10b"},
	{"r9", "r9d", "r9w", "r9b"}, {"r8", "r8d", "r8w", "r8b"},
	{"rax", "eax", "ax", "al"}, {"rcx", "ecx", "cx", "cl"},
	{"rdx", "edx", "dx", "dl"}, {"rsi", "esi", "si", "sil"},
	{"rdi", "edi", "di", "dil"}, {}, {}, {}, {}, {"rsp", "esp", "sp", "spl"},
}

func registerX86(text string) (uint16, error) {
	if name, ok := strings.CutPrefix(text, "%"); ok {
		for slot, names := range registersX86 {
			for _, known := range names {
				if name == known {
					return uint16(8 * slot), nil
				}
			}
		}
	}
	return 0, fmt.Errorf("register %.40q is not known", text)
}

// operandARM: 5, x0, w1, [sp, 60], [x0].
func operandARM(text string, a *Argument) (err error) {
	inside, ok := strings.CutPrefix(text, "[")
	if !ok {
		if a.Base, err = registerARM(text); err == nil {
			a.Kind = Register
			return nil
		}
		a.Kind = Constant
		a.Value, err = number(strings.TrimPrefix(text, "#"))
		return err
	}
	a.Kind = Memory
	if inside, ok = strings.CutSuffix(inside, "]"); !ok {
		return fmt.Errorf("is no operand that is known")
	}
	base, offset, ok := strings.Cut(inside, ",")
	if a.Base, err = registerARM(strings.TrimSpace(base)); err != nil || !ok {
		return err
	}
	offset = strings.TrimSpace(offset)
	if a.Index, err = registerARM(offset); err == nil {
		return nil
	}
	a.Index = NoIndex
	a.Value, err = number(strings.TrimPrefix(offset, "#"))
	return err
}

// registerARM is by struct user_pt_regs: x0 to x30, sp.
func registerARM(text string) (uint16, error) {
	if text == "sp" {
		return 8 * 31, nil
	}
	if len(text) >= 2 && (text[0] == 'x' || text[0] == 'w') {
		if n, err := strconv.ParseUint(text[1:], 10, 8); err == nil && n <= 30 && text[1] != '+' {
			return uint16(8 * n), nil
		}
	}
	return 0, fmt.Errorf("register %.40q is not known", text)
}
