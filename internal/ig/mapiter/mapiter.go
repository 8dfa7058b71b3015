// SPDX-License-Identifier: Apache-2.0

// Package mapiter reads maps like programs of the section iter/bpf_map_elem, on kernels that
// refuse to load these: some are hardened against iterators that are attached to maps. The
// entries are read from user space, and the same program converts each to rows in a small
// interpreter (machine). So a gadget's rows have one definition on all kernels.
package mapiter

import (
	"errors"
	"fmt"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// kind is the kind of iterator that needs a map.
const kind = "bpf_map_elem"

// stand is a kind that every kernel with iterators has. The placeholders of removed
// programs are loaded and never attached.
const stand = "task"

// Refused reports whether the kernel refuses iterators of maps but supports others. A kernel
// that has none (before 5.8), or a process without the right to load programs, refuses both:
// then Refused is false, and loading the gadget gives the reason.
var Refused = sync.OnceValue(func() bool { return loads(stand) && !loads(kind) })

func loads(kind string) bool {
	p, err := ebpf.NewProgram(empty(&ebpf.ProgramSpec{Name: "probe", License: "Dual BSD/GPL"}, kind))
	if err != nil {
		return false
	}
	p.Close()
	return true
}

// empty makes a program do nothing, for iterators of this kind.
func empty(p *ebpf.ProgramSpec, kind string) *ebpf.ProgramSpec {
	p.Type, p.AttachType, p.AttachTo, p.Flags = ebpf.Tracing, ebpf.AttachTraceIter, kind, 0
	p.Instructions = asm.Instructions{asm.Mov.Imm(asm.R0, 0).WithSymbol(p.Name), asm.Return()}
	return p
}

// Programs are those that Take removed, by name.
type Programs map[string]*Program

// Program turns entries of a map into rows.
type Program struct {
	name string
	code asm.Instructions
}

// Take removes the programs that iterate over maps from a specification that is not loaded
// yet, and leaves placeholders that do nothing.
func Take(spec *ebpf.CollectionSpec) Programs {
	taken := Programs{}
	for name, p := range spec.Programs {
		if p.Type != ebpf.Tracing || p.AttachType != ebpf.AttachTraceIter || p.AttachTo != kind {
			continue
		}
		taken[name] = &Program{name: name, code: p.Instructions}
		empty(p, stand)
	}
	return taken
}

// Each calls f for every entry of a map. Key and value are valid during the call.
type Each func(m *ebpf.Map, f func(key, value []byte)) error

// Rows returns the program's output for all entries of a map. maps has the gadget's maps by
// name, for lookups by the program. Entries that are added or deleted meanwhile may be
// missed, as with an iterator of the kernel.
func (p *Program) Rows(target *ebpf.Map, maps func(name string) (*ebpf.Map, error), each Each) ([]byte, error) {
	m, err := newMachine(p.code, maps)
	if err != nil {
		return nil, fmt.Errorf("prepare %s: %w", p.name, err)
	}
	var failed error
	err = each(target, func(key, value []byte) {
		if failed == nil {
			failed = m.entry(key, value)
		}
	})
	if err == nil {
		err = failed
	}
	if err != nil {
		return nil, fmt.Errorf("run %s: %w", p.name, err)
	}
	return m.out, nil
}

// ErrUnsupported means that the program does something that the interpreter cannot.
var ErrUnsupported = errors.New("not supported by the interpreter")
