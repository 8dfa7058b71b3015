// SPDX-License-Identifier: Apache-2.0

package mapiter

import (
	"encoding/binary"
	"fmt"
	"math/bits"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// Functions of the kernel that programs call (include/uapi/linux/bpf.h).
const (
	mapLookupElem      = asm.FnMapLookupElem
	probeReadKernel    = asm.FnProbeReadKernel
	probeReadKernelStr = asm.FnProbeReadKernelStr
	ktimeGetBootNs     = asm.FnKtimeGetBootNs
	ktimeGetNs         = asm.FnKtimeGetNs
	seqWrite           = asm.FnSeqWrite
)

const (
	// maxSteps is far above the instructions that a program runs for an entry. The verifier has
	// accepted it, so it ends.
	maxSteps = 1 << 20
	// stackBytes and maxDepth are the verifier's limits of a frame and of nested calls.
	stackBytes, maxDepth = 512, 8
	// An address is the number of a region and an offset in it; region 0 is the null pointer.
	regionShift = 32
)

// machine runs one program on entry after entry. Memory is a list of regions; a program can
// read and write these and nothing else. An access outside of them is an error.
type machine struct {
	code    []step
	maps    []*ebpf.Map // by the number that represents the map in a register
	regions [][]byte
	fixed   int // regions that live from entry to entry
	scratch map[*ebpf.Map]uint64
	out     []byte
	steps   int
}

// step is an instruction with its references resolved.
type step struct {
	asm.Instruction
	target int    // of jumps and calls: the index of the next step
	load   uint64 // of 64-bit loads: the value
}

// Regions of every run, after the null one.
const (
	regionContext = iota + 1
	regionMeta
	regionMap
	regionKey
	regionValue
	regionSeq
	regionsPerEntry
)

func newMachine(code asm.Instructions, maps func(string) (*ebpf.Map, error)) (*machine, error) {
	m := &machine{scratch: map[*ebpf.Map]uint64{}}
	m.regions = make([][]byte, regionsPerEntry)
	// struct bpf_iter__bpf_map_elem: meta, map, key, value; struct bpf_iter_meta: seq, …
	m.regions[regionContext] = make([]byte, 32)
	m.regions[regionMeta] = make([]byte, 24)
	m.regions[regionMap], m.regions[regionSeq] = []byte{}, []byte{}
	for n, r := range []uint64{regionMeta, regionMap, regionKey, regionValue} {
		binary.NativeEndian.PutUint64(m.regions[regionContext][8*n:], r<<regionShift)
	}
	binary.NativeEndian.PutUint64(m.regions[regionMeta], regionSeq<<regionShift)
	if err := m.link(code, maps); err != nil {
		return nil, err
	}
	m.fixed = len(m.regions)
	return m, nil
}

// link resolves jumps, calls and maps.
func (m *machine) link(code asm.Instructions, maps func(string) (*ebpf.Map, error)) error {
	symbols, byOffset := map[string]int{}, map[asm.RawInstructionOffset]int{}
	offsets := make([]asm.RawInstructionOffset, len(code))
	var at asm.RawInstructionOffset
	for n, ins := range code {
		if s := ins.Symbol(); s != "" {
			symbols[s] = n
		}
		offsets[n], byOffset[at] = at, n
		at += asm.RawInstructionOffset(ins.Size() / asm.InstructionSize)
	}
	numbers := map[string]int{}
	for n, ins := range code {
		s := step{Instruction: ins}
		class, op := ins.OpCode.Class(), ins.OpCode.JumpOp()
		switch {
		case ins.IsFunctionCall() && !ins.IsBuiltinCall():
			target, ok := symbols[ins.Reference()]
			if !ok {
				return fmt.Errorf("call of %q: %w", ins.Reference(), ErrUnsupported)
			}
			s.target = target
		case class.IsJump() && op != asm.Call && op != asm.Exit:
			offset := offsets[n] + 1 + asm.RawInstructionOffset(ins.Offset)
			target, ok := byOffset[offset]
			if ref := ins.Reference(); ref != "" {
				target, ok = symbols[ref]
			}
			if !ok {
				return fmt.Errorf("instruction %d jumps to none", n)
			}
			s.target = target
		case ins.OpCode.IsDWordLoad():
			value, err := m.loadOf(ins, numbers, maps)
			if err != nil {
				return err
			}
			s.load = value
		}
		m.code = append(m.code, s)
	}
	return nil
}

// loadOf returns the result of a 64-bit load: a constant, a map, or the address of a map's value.
func (m *machine) loadOf(ins asm.Instruction, numbers map[string]int, maps func(string) (*ebpf.Map, error)) (uint64, error) {
	if ins.Src != asm.PseudoMapFD && ins.Src != asm.PseudoMapValue {
		return uint64(ins.Constant), nil
	}
	name := ins.Reference()
	emap, err := maps(name)
	if err != nil {
		return 0, fmt.Errorf("map %s: %w", name, err)
	}
	if ins.Src == asm.PseudoMapFD {
		if _, known := numbers[name]; !known {
			numbers[name] = len(m.maps)
			m.maps = append(m.maps, emap)
		}
		return uint64(numbers[name]), nil
	}
	value, err := emap.LookupBytes(uint32(0))
	if err != nil {
		return 0, fmt.Errorf("read map %s: %w", name, err)
	}
	return m.add(value) + uint64(ins.Constant)>>32, nil
}

// add makes memory readable and writable, and returns its address.
func (m *machine) add(memory []byte) uint64 {
	m.regions = append(m.regions, memory)
	return uint64(len(m.regions)-1) << regionShift
}

// at returns memory of this size at an address.
func (m *machine) at(address, size uint64) ([]byte, error) {
	region, offset := address>>regionShift, address&(1<<regionShift-1)
	if region == 0 || region >= uint64(len(m.regions)) || offset > uint64(len(m.regions[region])) ||
		size > uint64(len(m.regions[region]))-offset { // not a sum, which could overflow
		return nil, fmt.Errorf("access to %d bytes at %#x", size, address)
	}
	return m.regions[region][offset : offset+size], nil
}

// entry runs the program on one entry of its map.
func (m *machine) entry(key, value []byte) error {
	m.regions = m.regions[:m.fixed]
	clear(m.scratch)
	m.regions[regionKey], m.regions[regionValue] = key, value
	m.steps = 0
	_, err := m.call(0, [6]uint64{1: regionContext << regionShift}, 0)
	return err
}

// call runs a function with its arguments in the registers from 1 on.
func (m *machine) call(pc int, arguments [6]uint64, depth int) (uint64, error) {
	if depth == maxDepth {
		return 0, fmt.Errorf("more than %d nested calls", maxDepth)
	}
	var r [11]uint64
	copy(r[:], arguments[:])
	r[10] = m.add(make([]byte, stackBytes)) + stackBytes
	for {
		if m.steps++; m.steps > maxSteps {
			return 0, fmt.Errorf("more than %d instructions", maxSteps)
		}
		if pc >= len(m.code) {
			return 0, fmt.Errorf("no instruction %d", pc)
		}
		s := &m.code[pc]
		pc++
		var err error
		switch class := s.OpCode.Class(); {
		case class.IsALU():
			err = s.alu(&r)
		case class.IsJump():
			switch {
			case s.OpCode.JumpOp() == asm.Exit:
				return r[0], nil
			case s.IsBuiltinCall():
				r[0], err = m.builtin(asm.BuiltinFunc(s.Constant), [6]uint64(r[:6]))
			case s.IsFunctionCall():
				r[0], err = m.call(s.target, [6]uint64(r[:6]), depth+1)
			default:
				var taken bool
				if taken, err = s.jump(&r); taken {
					pc = s.target
				}
			}
		case s.OpCode.IsDWordLoad():
			r[s.Dst] = s.load
		default:
			err = m.access(s, &r)
		}
		if err != nil {
			return 0, fmt.Errorf("instruction %d (%v): %w", pc-1, s.Instruction, err)
		}
	}
}

// access is a load or a store.
func (m *machine) access(s *step, r *[11]uint64) error {
	size := uint64(s.OpCode.Size().Sizeof())
	class := s.OpCode.Class()
	if s.OpCode.Mode() != asm.MemMode && s.OpCode.Mode() != asm.MemSXMode {
		return ErrUnsupported
	}
	address := r[s.Dst]
	if class == asm.LdXClass {
		address = r[s.Src]
	}
	memory, err := m.at(address+uint64(int64(s.Offset)), size)
	if err != nil {
		return err
	}
	switch class {
	case asm.LdXClass:
		value := load(memory)
		if s.OpCode.Mode() == asm.MemSXMode {
			shift := 64 - 8*size
			value = uint64(int64(value<<shift) >> shift)
		}
		r[s.Dst] = value
	case asm.StXClass:
		store(memory, r[s.Src])
	case asm.StClass:
		store(memory, uint64(s.Constant))
	default:
		return ErrUnsupported
	}
	return nil
}

func load(memory []byte) uint64 {
	switch len(memory) {
	case 1:
		return uint64(memory[0])
	case 2:
		return uint64(binary.NativeEndian.Uint16(memory))
	case 4:
		return uint64(binary.NativeEndian.Uint32(memory))
	}
	return binary.NativeEndian.Uint64(memory)
}

func store(memory []byte, value uint64) {
	switch len(memory) {
	case 1:
		memory[0] = byte(value)
	case 2:
		binary.NativeEndian.PutUint16(memory, uint16(value))
	case 4:
		binary.NativeEndian.PutUint32(memory, uint32(value))
	default:
		binary.NativeEndian.PutUint64(memory, value)
	}
}

// operand returns the second operand of an instruction.
func (s *step) operand(r *[11]uint64) uint64 {
	if s.OpCode.Source() == asm.RegSource {
		return r[s.Src]
	}
	return uint64(s.Constant)
}

func (s *step) alu(r *[11]uint64) error {
	a, b := r[s.Dst], s.operand(r)
	width := uint64(64)
	if s.OpCode.Class() == asm.ALUClass {
		width = 32
		a, b = uint64(uint32(a)), uint64(uint32(b))
	}
	switch s.OpCode.ALUOp() {
	case asm.Add:
		a += b
	case asm.Sub:
		a -= b
	case asm.Mul:
		a *= b
	case asm.Div: // a division by zero gives zero
		if b == 0 {
			a = 0
		} else {
			a /= b
		}
	case asm.Mod:
		if b != 0 {
			a %= b
		}
	case asm.Or:
		a |= b
	case asm.And:
		a &= b
	case asm.Xor:
		a ^= b
	case asm.LSh:
		a <<= b % width
	case asm.RSh:
		a >>= b % width
	case asm.ArSh:
		if width == 32 {
			a = uint64(uint32(int32(a) >> (b % width)))
		} else {
			a = uint64(int64(a) >> (b % width))
		}
	case asm.Neg:
		a = -a
	case asm.Mov:
		a = b
	case asm.Swap:
		return s.swap(r)
	default:
		return ErrUnsupported
	}
	if width == 32 {
		a = uint64(uint32(a))
	}
	r[s.Dst] = a
	return nil
}

// swap converts to big or little endian, or swaps unconditionally.
func (s *step) swap(r *[11]uint64) error {
	a, little := r[s.Dst], binary.NativeEndian.Uint16([]byte{1, 0}) == 1
	reverse := s.OpCode.Class() == asm.ALU64Class || (s.OpCode.Source() == asm.RegSource) == little
	switch s.Constant {
	case 16:
		if a = uint64(uint16(a)); reverse {
			a = uint64(bits.ReverseBytes16(uint16(a)))
		}
	case 32:
		if a = uint64(uint32(a)); reverse {
			a = uint64(bits.ReverseBytes32(uint32(a)))
		}
	case 64:
		if reverse {
			a = bits.ReverseBytes64(a)
		}
	default:
		return ErrUnsupported
	}
	r[s.Dst] = a
	return nil
}
