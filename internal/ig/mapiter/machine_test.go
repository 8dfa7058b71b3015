// SPDX-License-Identifier: Apache-2.0

package mapiter

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/stretchr/testify/require"
)

// rows runs a program on entries with these keys and values.
func rows(code asm.Instructions, entries ...[2][]byte) ([]byte, error) {
	p := &Program{name: "p", code: code}
	noMaps := func(name string) (*ebpf.Map, error) { return nil, fmt.Errorf("no map %s", name) }
	return p.Rows(nil, noMaps, func(_ *ebpf.Map, f func(key, value []byte)) error {
		for _, e := range entries {
			f(e[0], e[1])
		}
		return nil
	})
}

// write ends a program: it writes the 8 bytes of a register.
func write(value asm.Register) asm.Instructions {
	return asm.Instructions{
		asm.StoreMem(asm.RFP, -8, value, asm.DWord),
		asm.LoadMem(asm.R1, asm.R9, 0, asm.DWord), // meta
		asm.LoadMem(asm.R1, asm.R1, 0, asm.DWord), // seq
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -8),
		asm.Mov.Imm(asm.R3, 8),
		asm.FnSeqWrite.Call(),
		asm.Mov.Imm(asm.R0, 0),
		asm.Return(),
	}
}

func program(body ...asm.Instruction) asm.Instructions {
	code := append(asm.Instructions{asm.Mov.Reg(asm.R9, asm.R1)}, body...)
	return append(code, write(asm.R0)...)
}

func TestEachEntryIsARow(t *testing.T) {
	code := program(
		asm.LoadMem(asm.R2, asm.R9, 16, asm.DWord), // key
		asm.LoadMem(asm.R3, asm.R9, 24, asm.DWord), // value
		asm.LoadMem(asm.R0, asm.R2, 0, asm.Word),
		asm.LoadMem(asm.R4, asm.R3, 2, asm.Half),
		asm.LSh.Imm(asm.R4, 32),
		asm.Or.Reg(asm.R0, asm.R4),
	)
	entry := func(key uint32, value uint16) [2][]byte {
		return [2][]byte{binary.NativeEndian.AppendUint32(nil, key), binary.NativeEndian.AppendUint16([]byte{9, 9}, value)}
	}
	out, err := rows(code, entry(1, 2), entry(3, 4))
	require.NoError(t, err)
	require.Equal(t, []uint64{2<<32 | 1, 4<<32 | 3}, []uint64{binary.NativeEndian.Uint64(out), binary.NativeEndian.Uint64(out[8:])})
}

func TestArithmeticIsTheKernels(t *testing.T) {
	const minus = ^uint64(0)
	for name, c := range map[string]struct {
		code asm.Instructions
		want uint64
	}{
		"64 bits, sign extended constant": {asm.Instructions{asm.Mov.Imm(asm.R0, -1)}, minus},
		"32 bits clear the upper half":    {asm.Instructions{asm.Mov.Imm(asm.R0, -1), asm.Add.Imm32(asm.R0, 0)}, 1<<32 - 1},
		"shift by more than the width":    {asm.Instructions{asm.Mov.Imm(asm.R0, 1), asm.Mov.Imm(asm.R1, 65), asm.LSh.Reg(asm.R0, asm.R1)}, 2},
		"arithmetic shift":                {asm.Instructions{asm.Mov.Imm(asm.R0, -8), asm.ArSh.Imm(asm.R0, 1)}, minus - 3},
		"arithmetic shift, 32 bits":       {asm.Instructions{asm.Mov.Imm(asm.R0, -8), asm.ArSh.Imm32(asm.R0, 1)}, 1<<32 - 4},
		"division by zero":                {asm.Instructions{asm.Mov.Imm(asm.R0, 5), asm.Mov.Imm(asm.R1, 0), asm.Div.Reg(asm.R0, asm.R1)}, 0},
		"rest of a division by zero":      {asm.Instructions{asm.Mov.Imm(asm.R0, 5), asm.Mov.Imm(asm.R1, 0), asm.Mod.Reg(asm.R0, asm.R1)}, 5},
		"signed jump": {asm.Instructions{asm.Mov.Imm(asm.R0, -1), asm.JSLT.Imm(asm.R0, 0, "less"), asm.Mov.Imm(asm.R0, 7),
			asm.Add.Imm(asm.R0, 2).WithSymbol("less")}, 1},
		"unsigned jump, 32 bits": {asm.Instructions{asm.LoadImm(asm.R0, 1<<32, asm.DWord), asm.JEq.Imm32(asm.R0, 0, "zero"), asm.Mov.Imm(asm.R0, 7),
			asm.Add.Imm(asm.R0, 2).WithSymbol("zero")}, 1<<32 + 2},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := rows(program(c.code...), [2][]byte{{0}, {0}})
			require.NoError(t, err)
			require.Equal(t, c.want, binary.NativeEndian.Uint64(out))
		})
	}
}

// A function has its own registers and stack; arguments are in the registers from 1 on.
func TestFunctionsAreCalled(t *testing.T) {
	code := program(asm.Mov.Imm(asm.R1, 20), asm.Call.Label("twice"))
	code = append(code, asm.Mov.Reg(asm.R0, asm.R1).WithSymbol("twice"), asm.Mov.Imm(asm.R9, 0), asm.Add.Reg(asm.R0, asm.R1), asm.Return())
	out, err := rows(code, [2][]byte{{0}, {0}})
	require.NoError(t, err)
	require.EqualValues(t, 40, binary.NativeEndian.Uint64(out))
}

func TestInvalidProgramsAreErrors(t *testing.T) {
	for name, c := range map[string]struct {
		code asm.Instructions
		want string
	}{
		"null":           {asm.Instructions{asm.Mov.Imm(asm.R2, 0), asm.LoadMem(asm.R0, asm.R2, 0, asm.DWord)}, "access to 8 bytes at 0x0"},
		"behind the key": {asm.Instructions{asm.LoadMem(asm.R2, asm.R1, 16, asm.DWord), asm.LoadMem(asm.R0, asm.R2, 1, asm.DWord)}, "access to 8 bytes"},
		"no end":         {asm.Instructions{asm.Ja.Label("p").WithSymbol("p")}, "more than 1048576 instructions"},
		"too deep":       {asm.Instructions{asm.Call.Label("again").WithSymbol("again"), asm.Return()}, "more than 8 nested calls"},
		"no return":      {asm.Instructions{asm.Mov.Imm(asm.R0, 0)}, "no instruction 1"},
		"a function":     {asm.Instructions{asm.FnGetCurrentTask.Call(), asm.Return()}, ErrUnsupported.Error()},
		"a map":          {asm.Instructions{asm.LoadMapPtr(asm.R1, 0).WithReference("gone"), asm.Return()}, "map gone"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := rows(c.code, [2][]byte{{0, 0, 0, 0}, {0}})
			require.ErrorContains(t, err, c.want)
		})
	}
}

func FuzzMachine(f *testing.F) {
	f.Add([]byte{0xbf, 0x19, 0, 0, 0, 0, 0, 0, 0x95, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, raw []byte) {
		var code asm.Instructions
		for len(raw) >= 8 && len(code) < 64 {
			code = append(code, asm.Instruction{OpCode: asm.OpCode(raw[0]), Dst: asm.Register(raw[1] & 15 % 11), Src: asm.Register(raw[1] >> 4 % 11),
				Offset: int16(binary.LittleEndian.Uint16(raw[2:])), Constant: int64(int32(binary.LittleEndian.Uint32(raw[4:])))})
			raw = raw[8:]
		}
		_, _ = rows(code, [2][]byte{{1, 2, 3, 4}, make([]byte, 64)}) // an error, and no panic
	})
}
