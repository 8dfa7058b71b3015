// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
)

// A driver that is none may return any address for any size. The file has no opcodes but those of
// plain data, so that no name of a program is executed by who loads it.
func FuzzAllocations(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x7f\x00\x00\x00\x00\x00\x10\x00\x00\x00\x00\x00\x00\x01\x00"), "f", "c os\nsystem\n")
	f.Add(bytes.Repeat([]byte{0xff}, 18*5), "R.", "\x80")
	f.Fuzz(func(t *testing.T, b []byte, function, file string) {
		frames := stack.Stack{{Kind: stack.KindPython, Function: function, File: file, Line: 1}}
		var all []Allocation
		pools := map[int32]Pool{}
		for ; len(b) >= 18 && len(all) < 64; b = b[18:] {
			all = append(all, Allocation{
				Address: binary.LittleEndian.Uint64(b), Size: binary.LittleEndian.Uint64(b[8:]), Device: int32(int8(b[16])),
				IsTensor: b[17]&1 != 0, IsPiece: b[17]&2 != 0, IsUnplaced: b[17]&4 != 0,
				At: time.Unix(int64(b[17]), 0), Stack: frames, StackID: uint64(b[16]),
			})
			last := all[len(all)-1]
			pools[last.Device] = Pool{Reserved: pools[last.Device].Reserved + last.Size, Allocated: uint64(b[17] >> 3)}
		}
		var out bytes.Buffer
		if err := New(all, false, pools).Write(&out); err != nil {
			t.Fatal(err)
		}
		requirePlain(t, out.Bytes())
	})
}

// requirePlain walks the opcodes.
func requirePlain(t *testing.T, b []byte) {
	t.Helper()
	sizes := map[byte]int{
		opProto: 1, opMark: 0, opEmptyDict: 0, opSetItems: 0, opEmptyList: 0, opAppends: 0, opBinInt: 4, opBinInt1: 1,
		opTrue: 0, opFalse: 0, opBinPut: 1, opLongBinPut: 4, opBinGet: 1, opLongBinGet: 4,
	}
	for len(b) > 0 {
		opcode := b[0]
		b = b[1:]
		n, ok := sizes[opcode]
		switch {
		case ok:
		case opcode == opStop && len(b) == 0:
			return
		case opcode == opLong1 && len(b) > 0:
			n = 1 + int(b[0])
		case opcode == opUnicode && len(b) >= 4:
			n = 4 + int(binary.LittleEndian.Uint32(b))
		default:
			t.Fatalf("opcode %#x before %d bytes", opcode, len(b))
		}
		if n > len(b) {
			t.Fatalf("opcode %#x of %d bytes, before %d", opcode, n, len(b))
		}
		b = b[n:]
	}
	t.Fatal("no end")
}
