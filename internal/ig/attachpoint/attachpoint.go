// SPDX-License-Identifier: Apache-2.0

// Package attachpoint reads the table of functions to probe that a gadget's compiled object has.
package attachpoint

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// Point mirrors struct attach_point of bpf/call/attach_point.h.
type Point struct {
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
func (p Point) OnDemand() bool { return p.Fact != 0 }

// Section is the map that holds the table.
const Section = ".rodata.attach"

// Values of enum attach_mode (bpf/call/attach_point.h).
const (
	Perf  uint32 = 1
	Multi uint32 = 2
)

const (
	structName    = "attach_point"
	librarySize   = 32  // char library[32]
	symbolSize    = 128 // char symbol[128]
	rowSize       = librarySize + symbolSize + 4 + 4
	exitFlag      = 1
	sleepsFlag    = 2
	usdtFlag      = 4
	demandFlag    = 8
	lastFlag      = 16
	inWindowsFlag = 32
	tlsFlag       = 64
	besideFlag    = 128
	factShift     = 16
	// maxPoints is far above the size of all our gadgets' tables.
	maxPoints = 4096
)

// Parse reads the table from the specification of its map.
func Parse(spec *ebpf.MapSpec) ([]Point, error) {
	if err := checkLayout(spec); err != nil {
		return nil, fmt.Errorf("section %s: %w", Section, err)
	}
	if len(spec.Contents) != 1 {
		return nil, fmt.Errorf("section %s: %d values, not 1", Section, len(spec.Contents))
	}
	b, ok := spec.Contents[0].Value.([]byte)
	if !ok {
		return nil, fmt.Errorf("section %s: unexpected type %T", Section, spec.Contents[0].Value)
	}
	points, err := parsePoints(b)
	if err != nil {
		return nil, fmt.Errorf("section %s: %w", Section, err)
	}
	return points, nil
}

func parsePoints(b []byte) ([]Point, error) {
	if len(b)%rowSize != 0 || len(b)/rowSize > maxPoints {
		return nil, fmt.Errorf("%d bytes are no table of %d-byte rows", len(b), rowSize)
	}
	var out []Point
	for ; len(b) > 0; b = b[rowSize:] {
		library, ok := text(b[:librarySize])
		symbol, ok2 := text(b[librarySize : librarySize+symbolSize])
		if !ok || !ok2 || library == "" || symbol == "" {
			return nil, fmt.Errorf("row %d: empty or unterminated name", len(out))
		}
		flags := binary.NativeEndian.Uint32(b[rowSize-4:])
		fact := flags >> factShift
		flags &= 1<<factShift - 1
		if flags&^(exitFlag|sleepsFlag|usdtFlag|demandFlag|lastFlag|inWindowsFlag|tlsFlag|besideFlag) != 0 {
			return nil, fmt.Errorf("row %d: unknown flags %#x: the gadget is newer than this program", len(out), flags)
		}
		if (fact != 0) != (flags&demandFlag != 0) {
			return nil, fmt.Errorf("row %d: a point that is probed on demand needs a fact, and only such a point", len(out))
		}
		out = append(out, Point{
			Library: library, Symbol: symbol,
			Cookie: binary.NativeEndian.Uint32(b[rowSize-8:]),
			Exit:   flags&exitFlag != 0, EntrySleeps: flags&sleepsFlag != 0, USDT: flags&usdtFlag != 0, Last: flags&lastFlag != 0, InWindows: flags&inWindowsFlag != 0,
			ThreadLocals: flags&tlsFlag != 0, Beside: flags&besideFlag != 0, Fact: fact,
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
		if !ok || s.Name != structName || s.Size != rowSize {
			return fmt.Errorf("holds %v, not struct %s of %d bytes", typ, structName, rowSize)
		}
		want := map[string]btf.Bits{
			"library": 0,
			"symbol":  librarySize * 8,
			"cookie":  (librarySize + symbolSize) * 8,
			"flags":   (librarySize + symbolSize + 4) * 8,
		}
		for _, member := range s.Members {
			if off, ok := want[member.Name]; !ok || off != member.Offset {
				return fmt.Errorf("struct %s: unexpected member %s at bit %d", structName, member.Name, member.Offset)
			}
			delete(want, member.Name)
		}
		if len(want) > 0 {
			return fmt.Errorf("struct %s: %d members are missing", structName, len(want))
		}
	}
	return nil
}
