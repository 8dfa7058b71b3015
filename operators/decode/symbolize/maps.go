// SPDX-License-Identifier: Apache-2.0

package symbolize

import (
	"context"
	"encoding/binary"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"

	"github.com/gpu-gadgets/gpu-gadgets/internal/ig"
)

// kernelMaps reads the maps of bpf/stack/stack.h and bpf/python. They exist from Start on,
// but the programs already run then: a row that comes earlier waits.
type kernelMaps struct {
	ctx   context.Context
	once  sync.Once
	bound chan struct{}

	stacks, symbols, runtimes *ebpf.Map
}

func newKernelMaps(gc operators.GadgetContext) *kernelMaps {
	return &kernelMaps{ctx: gc.Context(), bound: make(chan struct{})}
}

// bind looks the maps up. One that the gadget does not have stays nil: a gadget
// without Python, for example.
func (m *kernelMaps) bind(gc ig.Context) {
	m.once.Do(func() {
		m.stacks, _ = ig.Map(gc, "stacks_by_id")
		m.symbols, _ = ig.Map(gc, "symbols_by_id")
		m.runtimes, _ = ig.Map(gc, "python_by_process")
		close(m.bound)
	})
}

func (m *kernelMaps) ready() bool {
	select {
	case <-m.bound:
		return true
	default:
	}
	select {
	case <-m.bound:
		return true
	case <-m.ctx.Done():
	case <-time.After(startLimit):
	}
	return false
}

func (m *kernelMaps) Stack(id uint64) ([]byte, bool) {
	if !m.ready() {
		return nil, false
	}
	return lookup(m.stacks, id)
}

func (m *kernelMaps) Symbol(id uint64) ([]byte, bool) { return lookup(m.symbols, id) }

// Runtime: the value begins with the address of _PyRuntime.
func (m *kernelMaps) Runtime(process uint64) (uint64, bool) {
	b, ok := lookup(m.runtimes, process)
	if !ok || len(b) < 8 {
		return 0, false
	}
	address := binary.NativeEndian.Uint64(b)
	return address, address != 0
}

func lookup(m *ebpf.Map, key uint64) ([]byte, bool) {
	if m == nil {
		return nil, false
	}
	b, err := m.LookupBytes(key)
	return b, err == nil && b != nil
}
