// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"debug/elf"
	"fmt"
	"math"
)

// Instructions of a program (DW_CFA_*). Those of the high bits have an operand in the low ones.
const (
	opAdvance = 0x40
	opOffset  = 0x80
	opRestore = 0xc0
	opHigh    = 0xc0

	opNop                = 0x00
	opSetLocation        = 0x01
	opAdvance1           = 0x02
	opAdvance2           = 0x03
	opAdvance4           = 0x04
	opOffsetExtended     = 0x05
	opRestoreExtended    = 0x06
	opUndefined          = 0x07
	opSameValue          = 0x08
	opRegister           = 0x09
	opRememberState      = 0x0a
	opRestoreState       = 0x0b
	opDefineCFA          = 0x0c
	opDefineCFARegister  = 0x0d
	opDefineCFAOffset    = 0x0e
	opDefineCFAExpr      = 0x0f
	opExpression         = 0x10
	opOffsetSigned       = 0x11
	opDefineCFASigned    = 0x12
	opDefineCFAOffSigned = 0x13
	opValueOffset        = 0x14
	opValueOffsetSigned  = 0x15
	opValueExpression    = 0x16
	opNegateRAState      = 0x2d // arm64: whether return addresses are signed
	opArgumentsSize      = 0x2e
	opNegativeOffset     = 0x2f
)

// registers are the numbers that DWARF has for those that matter.
type registers struct{ sp, fp, ra uint64 }

func registersOf(m elf.Machine) registers {
	if m == elf.EM_AARCH64 {
		return registers{sp: 31, fp: 29, ra: 30}
	}
	return registers{sp: 7, fp: 6, ra: 16}
}

// place is where a register of the caller is.
type place struct {
	how how
	off int64
}

type how uint8

const (
	unchanged how = iota
	atCFA
	atFP
	undefined
	unsupported
)

// state is that of a program between two instructions.
type state struct {
	kind     Kind // of the CFA; None: by a register or an expression that is not supported
	register uint64
	off, add int64
	fp, ra   place
	handler  [2]place // where handlerData are
}

// handlerData are registers that only a function saves which leaves itself for an exception's handler
// (EH_RETURN_DATA_REGNO of GCC: rax and rdx, x0 and x1). Before it does, it replaces its own return
// address by that of the handler, which did not call it.
var handlerData = [2]uint64{0, 1}

// machine runs the programs of a function.
type machine struct {
	fde
	regs       registers
	addr       uint64
	now        state
	initial    state
	remembered []state
}

// run calls add for each address from which on another rule holds.
func (e *fde) run(arch elf.Machine, add func(uint64, Rule)) error {
	if e.signal {
		add(e.begin, Rule{Kind: Signal})
		return nil
	}
	m := machine{fde: *e, regs: registersOf(arch), addr: e.begin}
	if m.cie.register != m.regs.ra {
		return fmt.Errorf("%w: the return address is in register %d", ErrMalformed, m.cie.register)
	}
	if err := m.execute(e.cie.program, func() {}); err != nil {
		return err
	}
	m.initial = m.now
	emit := func() {
		if m.addr < m.end {
			add(m.addr, m.rule())
		}
	}
	if err := m.execute(e.program, emit); err != nil {
		return err
	}
	emit()
	return nil
}

// execute runs a program; emit is called before each step to another address.
func (m *machine) execute(program []byte, emit func()) error {
	c := cursor{b: program}
	advance := func(n uint64) {
		emit()
		m.addr += n * m.codeAlign
	}
	for len(c.b) > 0 && c.err == nil && m.addr < m.end {
		op := c.byte()
		low := uint64(op &^ opHigh)
		switch op & opHigh {
		case opAdvance:
			advance(low)
			continue
		case opOffset:
			m.save(low, place{atCFA, int64(c.uleb()) * m.dataAlign})
			continue
		case opRestore:
			m.restore(low)
			continue
		}
		switch op {
		case opAdvance1:
			advance(c.number(1))
		case opAdvance2:
			advance(c.number(2))
		case opAdvance4:
			advance(c.number(4))
		default:
			if err := m.define(op, &c); err != nil {
				return err
			}
		}
	}
	return c.err
}

// define executes an instruction that changes a rule.
func (m *machine) define(op byte, c *cursor) error {
	switch op {
	case opNop, opNegateRAState:
	case opArgumentsSize:
		c.uleb()
	case opOffsetExtended:
		m.save(c.uleb(), place{atCFA, int64(c.uleb()) * m.dataAlign})
	case opOffsetSigned:
		m.save(c.uleb(), place{atCFA, c.sleb() * m.dataAlign})
	case opNegativeOffset:
		m.save(c.uleb(), place{atCFA, -int64(c.uleb()) * m.dataAlign})
	case opRestoreExtended:
		m.restore(c.uleb())
	case opUndefined:
		m.save(c.uleb(), place{how: undefined})
	case opSameValue:
		m.save(c.uleb(), place{})
	case opRegister, opValueOffset:
		m.save(c.uleb(), place{how: unsupported})
		c.uleb()
	case opValueOffsetSigned:
		m.save(c.uleb(), place{how: unsupported})
		c.sleb()
	case opExpression:
		register := c.uleb()
		m.save(register, m.savedBy(c.take(c.uleb())))
	case opValueExpression:
		m.save(c.uleb(), place{how: unsupported})
		c.skip(c.uleb())
	case opRememberState:
		if len(m.remembered) == maxRemembered {
			return fmt.Errorf("%w: more than %d states", ErrMalformed, maxRemembered)
		}
		m.remembered = append(m.remembered, m.now)
	case opRestoreState:
		if len(m.remembered) == 0 {
			return fmt.Errorf("%w: no state to restore", ErrMalformed)
		}
		m.now = m.remembered[len(m.remembered)-1]
		m.remembered = m.remembered[:len(m.remembered)-1]
	default:
		return m.defineCFA(op, c)
	}
	return nil
}

// defineCFA executes an instruction that changes where the frame begins.
func (m *machine) defineCFA(op byte, c *cursor) error {
	switch op {
	case opDefineCFA:
		m.frame(c.uleb(), int64(c.uleb()))
	case opDefineCFASigned:
		m.frame(c.uleb(), c.sleb()*m.dataAlign)
	case opDefineCFARegister:
		m.frame(c.uleb(), m.now.off)
	case opDefineCFAOffset:
		m.now.off = int64(c.uleb())
	case opDefineCFAOffSigned:
		m.now.off = c.sleb() * m.dataAlign
	case opDefineCFAExpr:
		m.frameBy(c.take(c.uleb()))
	default: // DW_CFA_set_loc, too, which compilers do not write
		return fmt.Errorf("%w: instruction %#x", ErrMalformed, op)
	}
	return nil
}

// frame has the frame begin at a register + off.
func (m *machine) frame(register uint64, off int64) {
	m.now.kind, m.now.register, m.now.off, m.now.add = None, register, off, 0
	switch register {
	case m.regs.sp:
		m.now.kind = FromSP
	case m.regs.fp:
		m.now.kind = FromFP
	}
}

// save has a register of the caller be in a place.
func (m *machine) save(register uint64, p place) {
	switch register {
	case m.regs.fp:
		m.now.fp = p
	case m.regs.ra:
		m.now.ra = p
	case handlerData[0], handlerData[1]:
		m.now.handler[register] = p
	}
}

func (m *machine) restore(register uint64) {
	switch register {
	case m.regs.fp:
		m.now.fp = m.initial.fp
	case m.regs.ra:
		m.now.ra = m.initial.ra
	case handlerData[0], handlerData[1]:
		m.now.handler[register] = m.initial.handler[register]
	}
}

// rule returns the rule of the state for a walk.
func (m *machine) rule() Rule {
	s := &m.now
	if s.ra.how == undefined {
		return Rule{Kind: Stop}
	}
	if s.handler[0].how == atCFA && s.handler[1].how == atCFA {
		return Rule{}
	}
	r := Rule{Kind: s.kind, CFA: int32(s.off), Add: int16(s.add), RA: int16(s.ra.off), FP: int16(s.fp.off)}
	fits := s.off == int64(r.CFA) && s.add == int64(r.Add) && s.ra.off == int64(r.RA)
	inRegister := s.ra.how == unchanged && m.regs.ra == 30
	if s.kind == None || !fits || (s.ra.how != atCFA && !inRegister) || (s.ra.how == atCFA && r.RA == 0) {
		return Rule{}
	}
	switch s.fp.how {
	case atCFA:
		r.Saved = AtCFA
	case atFP:
		r.Saved = AtFP
	case undefined, unsupported:
		r.Saved = Lost
	}
	if s.fp.off < math.MinInt16 || s.fp.off > math.MaxInt16 {
		r.Saved = Lost
	}
	// An epilogue has popped it, and the word is below the stack now. Compilers write no rule for that.
	if r.Saved == AtCFA && r.Kind == FromSP && int32(r.FP) < -r.CFA {
		r.Saved = Same
	}
	if r.Saved == Same || r.Saved == Lost {
		r.FP = 0
	}
	return r
}
