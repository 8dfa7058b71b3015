// SPDX-License-Identifier: Apache-2.0

package torch

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

const (
	// quietAfter allocations from the driver a pool has reported a block: it asks the
	// driver for one only where it has none for a block, which it then reports.
	quietAfter = 32
	// quietReadings in which that is so, each after one of the pools, which come at other
	// times and may come less often.
	quietReadings = 2
	// maxQuiet processes are remembered: most end without a report, which no row shows.
	maxQuiet = 4096
)

// quiet finds processes whose PyTorch reports no block while they allocate from the
// driver, which no setting in their environment explains: another allocator was put in its
// place (torch.cuda.memory.change_current_allocator).
type quiet struct {
	maps *procmaps.Cache // of processes, for PyTorch's library for GPUs; nil: all have it

	mu        sync.Mutex // guards what follows
	found     map[uint32]*quietProcess
	poolsRead bool // since the last reading that was counted
}

type quietProcess struct {
	name     string
	doubt    string // the name of a setting that may explain it; mostly ""
	readings int
	known    bool // it has reported a pool, or that it has not was logged or is no surprise
}

// find takes a process that has PyTorch, with the name of a setting that may turn its pool off, or "".
func (q *quiet) find(pid uint32, name, doubt string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.found == nil || len(q.found) >= maxQuiet {
		q.found = map[uint32]*quietProcess{}
	}
	q.found[pid] = &quietProcess{name: name, doubt: doubt}
}

// reported records a process that has reported a pool.
func (q *quiet) reported(pid uint32) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if p := q.found[pid]; p != nil {
		p.known = true
	}
}

// read takes note that the pools of all processes were read.
func (q *quiet) read() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.poolsRead = true
}

// see takes a reading, how many allocations from the driver each process has made, and
// returns the messages about them.
func (q *quiet) see(asked map[uint32]uint64) (lines []string) {
	for pid, p := range q.due(asked) {
		if q.maps == nil || mapsGPULibrary(q.maps, pid) { // which may take a moment
			lines = append(lines, p.line(pid, asked[pid]))
		}
	}
	return lines
}

// due are the processes that have reported nothing for long enough, each once.
func (q *quiet) due(asked map[uint32]uint64) map[uint32]*quietProcess {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.poolsRead {
		return nil
	}
	q.poolsRead = false
	due := map[uint32]*quietProcess{}
	for pid, p := range q.found {
		n, there := asked[pid]
		if p.known && !there { // it has ended, and its number may be another's
			delete(q.found, pid)
		}
		if p.known || n < quietAfter {
			continue
		}
		if p.readings++; p.readings >= quietReadings {
			p.known = true
			due[pid] = p
		}
	}
	return due
}

// line says it, of so many allocations from the driver.
func (p *quietProcess) line(pid uint32, asked uint64) string {
	why := "another allocator may replace its pool"
	if p.doubt != "" {
		why = p.doubt + " may turn its pool off, or another allocator may replace it"
	}
	return fmt.Sprintf("PyTorch of %s[%d] has reported no tensor during %d allocations from the driver: %s (torch.cuda.memory.change_current_allocator), whose memory is in the rows of the driver's kinds, or the process does not use the GPU through PyTorch", p.name, pid, asked, why)
}

// watch reads the rows of the pools and of all allocations, where there are both.
func (q *quiet) watch(gc operators.GadgetContext) error {
	pools, allocs := gc.GetDataSources()[poolsSource], gc.GetDataSources()["allocs"]
	if pools == nil || allocs == nil {
		return nil
	}
	teller, err := fieldsOf(pools, "proc.pid")
	if err != nil {
		return err
	}
	if err := pools.SubscribeArray(func(_ datasource.DataSource, all datasource.DataArray) error {
		for n := range all.Len() {
			pid, _ := teller["proc.pid"].Uint32(all.Get(n))
			q.reported(pid)
		}
		q.read()
		return nil
	}, subscription); err != nil {
		return fmt.Errorf("subscribe to %s: %w", pools.Name(), err)
	}
	from, err := fieldsOf(allocs, "proc.pid", "kind", "alloc_objects")
	if err != nil {
		return err
	}
	if err := allocs.SubscribeArray(func(_ datasource.DataSource, all datasource.DataArray) error {
		asked := map[uint32]uint64{}
		for n := range all.Len() {
			d := all.Get(n)
			if kind, _ := from["kind"].String(d); kind == profile.KindTensor {
				continue
			}
			pid, _ := from["proc.pid"].Uint32(d)
			objects, _ := from["alloc_objects"].Uint64(d)
			asked[pid] += objects
		}
		for _, line := range q.see(asked) {
			gc.Logger().Infof("torch: %s", line)
		}
		return nil
	}, subscription); err != nil {
		return fmt.Errorf("subscribe to %s: %w", allocs.Name(), err)
	}
	return nil
}

// mapsGPULibrary reports whether a process has mapped PyTorch's library for GPUs: one that was built for the CPU has none,
// and then others allocate from the driver, such as JAX. False also if that cannot be read: it has ended, or hangs.
func mapsGPULibrary(maps *procmaps.Cache, pid uint32) bool {
	found, err := maps.Read(pid, func(m procmaps.Mapping) bool {
		name := filepath.Base(m.Path)
		return slices.ContainsFunc(gpuLibraries, func(library string) bool { return strings.HasPrefix(name, library+".") })
	})
	return err == nil && len(found) > 0
}
