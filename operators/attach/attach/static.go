// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"debug/elf"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/cilium/ebpf"

	"github.com/gpu-gadgets/gpu-gadgets/internal/elf/usdt"
	"github.com/gpu-gadgets/gpu-gadgets/internal/ig"
	"github.com/gpu-gadgets/gpu-gadgets/internal/ig/attachpoint"
	"github.com/gpu-gadgets/gpu-gadgets/internal/tracer"
)

const (
	// staticPrograms and sitesMap are of bpf/call/usdt.h.
	staticPrograms = "attach_usdt"
	sitesMap       = "usdt_sites"
)

// staticPoint is a statically defined probe that the gadget wants.
type staticPoint struct {
	library, provider, name string
	program                 uint32
}

// splitStatic takes the statically defined probes off a table.
func splitStatic(table []attachpoint.Point) (static []staticPoint, functions []attachpoint.Point, err error) {
	for _, p := range table {
		if !p.USDT {
			functions = append(functions, p)
			continue
		}
		provider, name, ok := strings.Cut(p.Symbol, ":")
		if !ok {
			return nil, nil, fmt.Errorf("%q is not PROVIDER:NAME", p.Symbol)
		}
		static = append(static, staticPoint{p.Library, provider, name, p.Cookie})
	}
	return static, functions, nil
}

// takeStatic looks up the programs for statically defined probes.
func (i *instance) takeStatic(gc ig.Context) error {
	if len(i.static) == 0 {
		return nil
	}
	table, err := ig.Map(gc, sitesMap)
	if err != nil {
		return err
	}
	programs, err := ig.Programs(gc, staticPrograms)
	if err != nil {
		return err
	}
	for _, p := range programs {
		i.programs = append(i.programs, p)
	}
	for _, p := range i.static {
		program := programs[p.program]
		if program == nil {
			return fmt.Errorf("the gadget has no program for %s:%s", p.provider, p.name)
		}
		i.cfg.USDT.Probes = append(i.cfg.USDT.Probes, tracer.StaticProbe{
			Library: p.library, Provider: p.provider, Name: p.name, Program: program,
		})
	}
	s := &sites{most: table.MaxEntries(), known: map[string]uint32{}, put: func(n uint32, b []byte) error {
		return table.Update(n, b, ebpf.UpdateAny)
	}}
	i.cfg.USDT.Site = s.number
	return nil
}

// errSites: a process cannot make this program write more.
var errSites = errors.New("too many different places of arguments")

// sites are the places of probes' arguments that the programs know, by number. Places with
// the same arguments share one.
type sites struct {
	most uint32
	put  func(uint32, []byte) error

	mu    sync.Mutex
	known map[string]uint32
}

func (s *sites) number(machine elf.Machine, arguments string) (uint64, error) {
	all, err := usdt.Parse(machine, arguments)
	if err != nil {
		return 0, err
	}
	b := usdt.Encode(all)
	s.mu.Lock()
	defer s.mu.Unlock()
	if n, ok := s.known[string(b)]; ok {
		return uint64(n), nil
	}
	n := uint32(len(s.known))
	if n >= s.most {
		return 0, errSites
	}
	if err := s.put(n, b); err != nil {
		return 0, fmt.Errorf("pass the places of arguments to the gadget: %w", err)
	}
	s.known[string(b)] = n
	return uint64(n), nil
}
