// SPDX-License-Identifier: Apache-2.0

package ig

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// AttachPoint mirrors struct attach_point of bpf/call/attach_point.h.
type AttachPoint struct {
	// Library is a file name up to ".so", e.g. "libcuda".
	Library string
	// Symbol is an exported name, not demangled.
	Symbol string
	// Cookie identifies the point to the generic program.
	Cookie uint32
	// Exit: the return is probed as well.
	Exit bool
	// EntrySleeps: the entry has a program of its own, which may sleep.
	EntrySleeps bool
	// USDT: Symbol is PROVIDER:NAME of a statically defined probe, Cookie the index of
	// its program.
	USDT bool
	// Fact, if not 0, is the fact that the point provides: it is probed only in
	// processes in which it is missing (enum fact of bpf/call/demand.h).
	Fact uint32
	// Last: it is attached to after the points without it.
	Last bool
	// InWindows: if a budget requires it, it is probed part of the time only.
	InWindows bool
	// ThreadLocals: the cookie, from bit 8 on, is to say where the library has its
	// thread-local variables.
	ThreadLocals bool
	// Beside: the library is probed only in processes that have mapped one whose points
	// are not Beside, too.
	Beside bool
}

// OnDemand reports whether the point is probed only in processes in which what it teaches is unknown.
func (p AttachPoint) OnDemand() bool { return p.Fact != 0 }

const (
	attachSection       = ".rodata.attach"
	attachStruct        = "attach_point"
	attachLibrary       = 32  // char library[32]
	attachSymbol        = 128 // char symbol[128]
	attachSize          = attachLibrary + attachSymbol + 4 + 4
	attachExitFlag      = 1
	attachSleepsFlag    = 2
	attachUSDTFlag      = 4
	attachDemandFlag    = 8
	attachLastFlag      = 16
	attachInWindowsFlag = 32
	attachTLSFlag       = 64
	attachBesideFlag    = 128
	attachFactShift     = 16
	// maxPoints is far above the size of all our gadgets' tables.
	maxPoints = 4096
)

// AttachPoints reads the gadget's table of functions to probe from its compiled object. A
// gadget without a table is not one of ours: it gives no points and no error. A table of
// another layout is an error.
func AttachPoints(gc Context) ([]AttachPoint, error) {
	spec, err := MapSpec(gc, attachSection)
	if errors.Is(err, ErrAbsent) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	points, err := ParseAttachPoints(spec)
	return slices.DeleteFunc(points, func(p AttachPoint) bool { return isSkipped(gc, p.Library) }), err
}

// ParseAttachPoints reads the table from the specification of its map.
func ParseAttachPoints(spec *ebpf.MapSpec) ([]AttachPoint, error) {
	if err := checkLayout(spec); err != nil {
		return nil, fmt.Errorf("section %s: %w", attachSection, err)
	}
	if len(spec.Contents) != 1 {
		return nil, fmt.Errorf("section %s: %d values, not 1", attachSection, len(spec.Contents))
	}
	b, ok := spec.Contents[0].Value.([]byte)
	if !ok {
		return nil, fmt.Errorf("section %s: unexpected type %T", attachSection, spec.Contents[0].Value)
	}
	points, err := parsePoints(b)
	if err != nil {
		return nil, fmt.Errorf("section %s: %w", attachSection, err)
	}
	return points, nil
}

func parsePoints(b []byte) ([]AttachPoint, error) {
	if len(b)%attachSize != 0 || len(b)/attachSize > maxPoints {
		return nil, fmt.Errorf("%d bytes are no table of %d-byte rows", len(b), attachSize)
	}
	var out []AttachPoint
	for ; len(b) > 0; b = b[attachSize:] {
		library, ok := text(b[:attachLibrary])
		symbol, ok2 := text(b[attachLibrary : attachLibrary+attachSymbol])
		if !ok || !ok2 || library == "" || symbol == "" {
			return nil, fmt.Errorf("row %d: empty or unterminated name", len(out))
		}
		flags := binary.NativeEndian.Uint32(b[attachSize-4:])
		fact := flags >> attachFactShift
		flags &= 1<<attachFactShift - 1
		if flags&^(attachExitFlag|attachSleepsFlag|attachUSDTFlag|attachDemandFlag|attachLastFlag|attachInWindowsFlag|attachTLSFlag|attachBesideFlag) != 0 {
			return nil, fmt.Errorf("row %d: unknown flags %#x: the gadget is newer than this program", len(out), flags)
		}
		if (fact != 0) != (flags&attachDemandFlag != 0) {
			return nil, fmt.Errorf("row %d: a point that is probed on demand needs a fact, and only such a point", len(out))
		}
		out = append(out, AttachPoint{
			Library: library, Symbol: symbol,
			Cookie: binary.NativeEndian.Uint32(b[attachSize-8:]),
			Exit:   flags&attachExitFlag != 0, EntrySleeps: flags&attachSleepsFlag != 0, USDT: flags&attachUSDTFlag != 0, Last: flags&attachLastFlag != 0, InWindows: flags&attachInWindowsFlag != 0,
			ThreadLocals: flags&attachTLSFlag != 0, Beside: flags&attachBesideFlag != 0, Fact: fact,
		})
	}
	return out, nil
}

func text(b []byte) (string, bool) {
	s, _, terminated := bytes.Cut(b, []byte{0})
	return string(s), terminated
}

// checkLayout compares the struct that the gadget was compiled with to the one
// that this program reads. The table may be split over several variables.
func checkLayout(spec *ebpf.MapSpec) error {
	section, ok := spec.Value.(*btf.Datasec)
	if !ok {
		return errors.New("no BTF")
	}
	for _, v := range section.Vars {
		typ := v.Type
		if variable, ok := typ.(*btf.Var); ok {
			typ = variable.Type
		}
		for {
			if array, ok := btf.UnderlyingType(typ).(*btf.Array); ok {
				typ = array.Type
				continue
			}
			break
		}
		s, ok := btf.UnderlyingType(typ).(*btf.Struct)
		if !ok || s.Name != attachStruct || s.Size != attachSize {
			return fmt.Errorf("holds %v, not struct %s of %d bytes", typ, attachStruct, attachSize)
		}
		want := map[string]btf.Bits{
			"library": 0,
			"symbol":  attachLibrary * 8,
			"cookie":  (attachLibrary + attachSymbol) * 8,
			"flags":   (attachLibrary + attachSymbol + 4) * 8,
		}
		for _, member := range s.Members {
			if off, ok := want[member.Name]; !ok || off != member.Offset {
				return fmt.Errorf("struct %s: unexpected member %s at bit %d", attachStruct, member.Name, member.Offset)
			}
			delete(want, member.Name)
		}
		if len(want) > 0 {
			return fmt.Errorf("struct %s: %d members are missing", attachStruct, len(want))
		}
	}
	return nil
}
