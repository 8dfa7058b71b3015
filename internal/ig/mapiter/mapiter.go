// SPDX-License-Identifier: Apache-2.0

// Package mapiter reads maps as programs of the section iter/bpf_map_elem do, on kernels that
// refuse to load these: some are hardened against iterators that are attached to maps. The
// entries are read from user space, and the very same program turns each into rows, in a small
// interpreter (Machine). So what a gadget shows has one source, whatever the kernel permits.
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

// stand is a kind that every kernel with iterators has. The programs that take the place of
// those that were taken out are loaded and never attached.
const stand = "task"

// Refused says whether the kernel refuses iterators of maps although it has others. A kernel
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

// Programs are those that Take took out, by name.
type Programs map[string]*Program

// Program turns entries of a map into rows.
type Program struct {
	name string
	code asm.Instructions
}

// Take takes the programs that iterate over maps out of a specification that is not loaded
// yet, and leaves in their places programs that do nothing.
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

// Rows are what the program writes for all entries of a map, one after the other. maps gives
// the gadget's maps by name; the program may look up in them. Entries that come or go
// meanwhile may be missed, as with an iterator of the kernel.
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

// ErrUnsupported: the program does something that the interpreter cannot.
var ErrUnsupported = errors.New("not supported by the interpreter")
