// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"debug/elf"
	"testing"
)

// Whole files, with which FuzzRows begins, seldom get a damaged program past the tables: these are
// the instructions and expressions alone.
func FuzzProgram(f *testing.F) {
	f.Add([]byte{opDefineCFA, 7, 8, opOffset | 16, 1}, []byte{opAdvance | 1, opDefineCFAOffset, 16, opRememberState, opRestoreState}, uint64(1), int64(-8), false)
	f.Add([]byte{opDefineCFAExpr, 11, 0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22}, []byte{opAdvance4, 255, 255, 255, 255}, uint64(4), int64(1), false)
	f.Add([]byte{opDefineCFA, 31, 0}, []byte{opExpression, 29, 2, 0x8d, 0x70, opNegateRAState, opRestore | 29}, uint64(1<<63), int64(-1<<63), true)
	f.Fuzz(func(t *testing.T, common, program []byte, codeAlign uint64, dataAlign int64, arm bool) {
		machine := elf.EM_X86_64
		if arm {
			machine = elf.EM_AARCH64
		}
		c := &cie{register: registersOf(machine).ra, codeAlign: codeAlign, dataAlign: dataAlign, program: common}
		e := &fde{cie: c, begin: 1 << 20, end: 1<<20 + 1<<16, program: program}
		rules := 0
		_ = e.run(machine, func(at uint64, r Rule) {
			rules++
			if at >= e.end || r.Kind != None && r.Kind != Stop && r.RA == 0 && !arm {
				t.Fatalf("%+v at %#x", r, at)
			}
		})
		if rules > len(program)+1 {
			t.Fatalf("%d rules of %d bytes", rules, len(program))
		}
	})
}
