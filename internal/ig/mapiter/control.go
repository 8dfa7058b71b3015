// SPDX-License-Identifier: Apache-2.0

package mapiter

import (
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"
)

// builtin is a call of a function of the kernel.
func (m *machine) builtin(f asm.BuiltinFunc, r [6]uint64) (uint64, error) {
	switch f {
	case mapLookupElem:
		return m.lookup(r[1], r[2])
	case seqWrite:
		memory, err := m.at(r[2], r[3])
		if err != nil {
			return 0, err
		}
		m.out = append(m.out, memory...)
		return 0, nil
	case probeReadKernel, probeReadKernelStr:
		return m.read(r[1], r[2], r[3], f == probeReadKernelStr)
	case ktimeGetBootNs, ktimeGetNs:
		clock := int32(unix.CLOCK_BOOTTIME)
		if f == ktimeGetNs {
			clock = unix.CLOCK_MONOTONIC
		}
		var now unix.Timespec
		if err := unix.ClockGettime(clock, &now); err != nil {
			return 0, err
		}
		return uint64(now.Nano()), nil
	}
	return 0, fmt.Errorf("call of %v: %w", f, ErrUnsupported)
}

// lookup reads a copy of a map's value. A value of a per-CPU map is scratch memory of the
// program, and starts as zeros.
func (m *machine) lookup(number, key uint64) (uint64, error) {
	if number >= uint64(len(m.maps)) {
		return 0, fmt.Errorf("no map %d", number)
	}
	emap := m.maps[number]
	memory, err := m.at(key, uint64(emap.KeySize()))
	if err != nil {
		return 0, err
	}
	if emap.Type() == ebpf.PerCPUArray {
		if m.scratch[emap] == 0 {
			m.scratch[emap] = m.add(make([]byte, emap.ValueSize()))
		}
		return m.scratch[emap], nil
	}
	value, err := emap.LookupBytes(memory)
	if err != nil || value == nil {
		return 0, err
	}
	return m.add(value), nil
}

// read copies memory; for an invalid address the program gets zeros and an error, as in the
// kernel.
func (m *machine) read(to, size, from uint64, text bool) (uint64, error) {
	into, err := m.at(to, size)
	if err != nil {
		return 0, err
	}
	clear(into)
	region, offset := from>>regionShift, from&(1<<regionShift-1)
	if region == 0 || region >= uint64(len(m.regions)) || offset > uint64(len(m.regions[region])) {
		return ^uint64(uint32(unix.EFAULT)) + 1, nil
	}
	source := m.regions[region][offset:]
	if !text {
		if uint64(len(source)) < size {
			return ^uint64(uint32(unix.EFAULT)) + 1, nil
		}
		copy(into, source)
		return 0, nil
	}
	for n := range into {
		if n == len(source) || source[n] == 0 {
			return uint64(n + 1), nil
		}
		into[n] = source[n]
	}
	if size > 0 {
		into[size-1] = 0
	}
	return size, nil
}

// jump reports whether a jump is taken.
func (s *step) jump(r *[11]uint64) (bool, error) {
	a, b := r[s.Dst], s.operand(r)
	x, y := int64(a), int64(b)
	if s.OpCode.Class() == asm.Jump32Class {
		a, b = uint64(uint32(a)), uint64(uint32(b))
		x, y = int64(int32(a)), int64(int32(b))
	}
	switch s.OpCode.JumpOp() {
	case asm.Ja:
		return true, nil
	case asm.JEq:
		return a == b, nil
	case asm.JNE:
		return a != b, nil
	case asm.JSet:
		return a&b != 0, nil
	case asm.JGT:
		return a > b, nil
	case asm.JGE:
		return a >= b, nil
	case asm.JLT:
		return a < b, nil
	case asm.JLE:
		return a <= b, nil
	case asm.JSGT:
		return x > y, nil
	case asm.JSGE:
		return x >= y, nil
	case asm.JSLT:
		return x < y, nil
	case asm.JSLE:
		return x <= y, nil
	}
	return false, ErrUnsupported
}
