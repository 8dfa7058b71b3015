// SPDX-License-Identifier: Apache-2.0

package unwind

import "bytes"

// Operations of expressions (DW_OP_*) that compilers and linkers use for frames.
const (
	exprDereference  = 0x06
	exprAddConstant  = 0x23
	exprRegister     = 0x70 // of register 0; 31 more follow
	exprLastRegister = 0x8f
	exprLiteral      = 0x30
	exprLastLiteral  = 0x4f
)

// The expression that linkers write for the procedure linkage table of x86-64: at the stack
// pointer + 8, and 8 further from a certain instruction of the 16-byte entry on, which has pushed
// a number: rsp+8 + ((rip+0 & 15) >= N) << 3.
var (
	pltBefore = []byte{0x77, 8, 0x80, 0, 0x3f, 0x1a}
	pltAfter  = []byte{0x2a, 0x33, 0x24, 0x22}
)

// frameBy has the frame begin where an expression says.
func (m *machine) frameBy(expr []byte) {
	s := &m.now
	s.kind, s.add = None, 0
	if middle, ok := bytes.CutPrefix(expr, pltBefore); ok && m.regs.sp == 7 && len(middle) == 1+len(pltAfter) &&
		bytes.Equal(middle[1:], pltAfter) && middle[0] >= exprLiteral && middle[0] <= exprLiteral+15 {
		s.kind, s.off = PLT, int64(middle[0]-exprLiteral)
		return
	}
	c := cursor{b: expr}
	register, off, ok := registerAndOffset(&c)
	if !ok {
		return
	}
	m.frame(register, off)
	if len(c.b) == 0 {
		return
	}
	if c.byte() != exprDereference {
		s.kind = None
		return
	}
	if len(c.b) > 0 {
		if c.byte() != exprAddConstant {
			s.kind = None
			return
		}
		s.add = int64(c.uleb())
	}
	switch {
	case len(c.b) > 0 || c.err != nil:
		s.kind = None
	case s.kind == FromSP:
		s.kind = FromWordAtSP
	case s.kind == FromFP:
		s.kind = FromWordAtFP
	}
}

// savedBy is where an expression says that a register was saved: GCC's functions that align
// their stack save the frame pointer where the new one points to.
func (m *machine) savedBy(expr []byte) place {
	c := cursor{b: expr}
	register, off, ok := registerAndOffset(&c)
	if ok && register == m.regs.fp && len(c.b) == 0 {
		return place{atFP, off}
	}
	return place{how: unsupported}
}

func registerAndOffset(c *cursor) (register uint64, off int64, ok bool) {
	op := c.byte()
	if op < exprRegister || op > exprLastRegister {
		return 0, 0, false
	}
	off = c.sleb()
	return uint64(op - exprRegister), off, c.err == nil
}
