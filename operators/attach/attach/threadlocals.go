// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/cilium/ebpf"

	"github.com/gpu-gadgets/gpu-gadgets/internal/elf/module"
	"github.com/gpu-gadgets/gpu-gadgets/internal/ig"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
	"github.com/gpu-gadgets/gpu-gadgets/internal/tracer"
)

// blocksMap is the map of bpf/call/backward.h.
const blocksMap = "tls_blocks"

// block is struct tls_block of bpf/call/backward.h; a test compares it with BTF.
type block struct {
	Function uint64
	At       uint64
	Offset   uint64
	Access   uint32
	Bytes    uint32
}

// accesses is enum tls_access of bpf/process/tls.h.
var accesses = map[module.Access]uint32{module.AccessOffset: 2, module.AccessIndex: 3, module.AccessDescriptor: 4}

// takeThreadLocals lets the tracer show the programs where libraries have their thread-local
// variables. Gadgets that do not ask have no such map.
func (i *instance) takeThreadLocals(gc ig.Context) error {
	if !slices.ContainsFunc(i.cfg.Points, func(p tracer.Point) bool { return p.ThreadLocals }) {
		return nil
	}
	m, err := ig.Map(gc, blocksMap)
	if err != nil {
		return err
	}
	b := newBlocks(m.MaxEntries(), func(n uint32, v block) error { return m.Update(n, v, ebpf.UpdateAny) })
	i.cfg.ThreadLocals = b.number
	return nil
}

// errBlocks: the files of processes cannot make this program write more.
var errBlocks = errors.New("too many different libraries with thread-local variables")

// blocks are those that the programs know, by number.
type blocks struct {
	most uint32
	put  func(uint32, block) error

	mu    sync.Mutex
	known []block
	by    map[procmaps.Tenant]uint32 // how many of known a tenant had first
}

func newBlocks(most uint32, put func(n uint32, v block) error) *blocks {
	return &blocks{most: most, put: put, by: map[procmaps.Tenant]uint32{}}
}

// number returns that of a library's variables. The last quarter of the numbers is for tenants that have few.
func (b *blocks) number(function uint64, found module.ThreadLocalBlock, tenant procmaps.Tenant) (uint32, error) {
	v := block{Function: function, At: found.Variable.Address, Offset: found.Offset,
		Access: accesses[found.Variable.Access], Bytes: uint32(min(found.Size, 1<<32-1))}
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := slices.Index(b.known, v); n >= 0 {
		return uint32(n + 1), nil
	}
	n := uint32(len(b.known) + 1)
	if n >= b.most || (n >= b.most-b.most/4 && b.by[tenant] >= b.most/4) {
		return 0, errBlocks
	}
	if err := b.put(n, v); err != nil {
		return 0, fmt.Errorf("pass the places of thread-local variables to the gadget: %w", err)
	}
	b.known = append(b.known, v)
	b.by[tenant]++
	return n, nil
}
