// SPDX-License-Identifier: Apache-2.0

// Package reap removes entries of ended processes from a gadget's eBPF maps: pointers
// that will never be freed, and, when the maps fill up, rows, and the stacks and names
// that only they referenced. The eBPF programs only mark a process as ended, because its
// exit must not wait for an iteration over 10⁵ pointers.
package reap

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cilium/ebpf"

	"github.com/gpu-gadgets/gpu-gadgets/internal/ig/mapiter"
)

// Maps of one gadget. A key's first 8 bytes are the process id in all of them.
type Maps struct {
	// Processes is processes_by_id of bpf/process/rows.h: a process's last 8 bytes
	// are its exit time in ns since boot, 0 while it runs.
	Processes *ebpf.Map
	// State is deleted as soon as its process has ended.
	State []*ebpf.Map
	// Rows are visible to users: they stay until a map is half full, or for Forget
	// after their process's end. 0: no limit.
	Rows   []*ebpf.Map
	Forget time.Duration
	// Counting are rows that hold no memory and only count: those that do not change
	// are removed when five eighths of their map or of Stacks are in use. nil: none.
	Counting *ebpf.Map
	// Windows has the windows of the same rows, by the same keys, and goes with them. nil: the gadget has none.
	Windows *ebpf.Map
	// Stacks is stacks_by_id and Symbols symbols_by_id of bpf/stack/stack.h. Entries that
	// neither rows nor state reference are removed when their map is half full. nil: the
	// gadget has none.
	Stacks, Symbols *ebpf.Map
	// Passes is backward_passes of bpf/call/backward.h, which references stacks. nil: none.
	Passes *ebpf.Map
	// Kernels is names_by_function of bpf/launch/names.h, whose entries are removed as those of Stacks, and
	// Handles function_by_handle, which references them, too: the entries of ended processes are
	// deleted as those of State. nil: the gadget has none.
	Kernels, Handles *ebpf.Map
	// Places is python_lines_by_place, which references symbols like the stacks.
	Places *ebpf.Map
	// Spans are the rows by span, nil if there are none: see Reaper.spans.
	Spans *ebpf.Map
	// Idle reads a row of Spans: a counter that grows with each change, and whether
	// the row holds nothing.
	Idle func(value []byte) (activity uint64, idle bool)
	// Requests is requests_by_row of bpf/memory/rows.h: an entry goes with the row of Spans that has the same key. nil: the
	// gadget has none.
	Requests *ebpf.Map
	// Quotas is zero where the gadget has none.
	Quotas Quotas
}

// Reaper keeps track of the processes that it has cleaned up after. It is not safe for
// concurrent use.
type Reaper struct {
	maps Maps
	// grace is how long a row stays readable after its process ended.
	grace     time.Duration
	done      map[uint64]bool
	idleSpans map[string]idleRow

	passes, swept            int      // of all, and at the last sweep
	stacks, symbols, kernels *sweeper // nil: the gadget has none
	counting                 *idler
	quotas                   quotas
}

// The stacks and their names are swept only every so many passes, or when they are expected to fill half of
// their maps: a sweep copies them, 60 MB if they fill their maps.
const (
	sweepEvery     = 12
	sweepFullEvery = 2
)

// From which part of a table in use on rows that only count are watched, and those that do not change are
// removed: before one tenant has three quarters of it, which are all that it may have.
const lookShare, removeShare = 1.0 / 2, 5.0 / 8

// New returns a Reaper. grace should cover several reads of the rows.
func New(maps Maps, grace time.Duration) *Reaper {
	if maps.Handles != nil {
		maps.State = append(slices.Clip(maps.State), maps.Handles)
	}
	r := &Reaper{maps: maps, grace: grace, done: make(map[uint64]bool)}
	namedBy := slices.Concat(maps.State, maps.Rows)
	if maps.Spans != nil {
		namedBy = append(namedBy, maps.Spans)
	}
	if maps.Passes != nil {
		namedBy = append(namedBy, maps.Passes)
	}
	if maps.Stacks != nil {
		r.stacks = newSweeper(maps.Stacks, namedBy, nil)
	}
	if maps.Symbols != nil && maps.Stacks != nil && maps.Places != nil {
		r.symbols = newSweeper(maps.Symbols, []*ebpf.Map{maps.Stacks, maps.Places}, r.stacks)
	}
	if maps.Kernels != nil {
		r.kernels = newSweeper(maps.Kernels, namedBy, nil)
	}
	r.quotas = quotas{Quotas: maps.Quotas, processes: maps.Processes, stacks: maps.Stacks, symbols: maps.Symbols, kernels: maps.Kernels}
	if maps.Counting != nil {
		r.counting = &idler{rows: maps.Counting, beside: maps.Windows}
	}
	return r
}

// Result has what a pass removed.
type Result struct {
	Processes, State, Rows int
	// Idle are rows of running processes, Spans those of spans.
	Idle, Spans int
	// Restored are stacks and names that were needed again.
	Stacks, Symbols, Kernels, Restored int
}

// Pass cleans up once. now is the clock of bpf_ktime_get_boot_ns. A process's state is
// iterated once, so that a pass costs nothing while no process ends.
func (r *Reaper) Pass(now time.Duration) (Result, error) {
	result, err := r.processes(now)
	if err == nil {
		result.Idle, err = r.idle()
	}
	if err != nil {
		return result, err
	}
	r.passes++
	if r.passes-r.swept >= r.sweepEvery(result.Rows+result.Idle > 0) {
		r.swept = r.passes
		err = r.sweep(&result)
	}
	return result, err
}

// sweepEvery is the number of passes from a sweep to the next.
func (r *Reaper) sweepEvery(isRemoved bool) int {
	switch {
	case r.full() && isRemoved:
		return 1
	case r.full():
		return sweepFullEvery
	}
	every := sweepEvery
	for _, s := range []*sweeper{r.stacks, r.symbols, r.kernels} {
		if s != nil {
			every = min(every, s.passesUntilFull())
		}
	}
	return every
}

// Refused returns what tenants were refused since the last time. After a pass with this result it
// corrects what they have.
func (r *Reaper) Refused(result Result) ([]Refusal, error) {
	return r.quotas.pass(result != (Result{}))
}

// idle makes room if running processes fill the maps.
func (r *Reaper) idle() (int, error) {
	if r.counting == nil {
		return 0, nil
	}
	rows, err := count(r.counting.rows)
	if err != nil {
		return 0, err
	}
	scarce := func(share float64) bool {
		return float64(rows) > share*float64(r.counting.rows.MaxEntries()) ||
			r.stacks != nil && float64(r.stacks.entries) > share*float64(r.stacks.target.MaxEntries())
	}
	if !scarce(lookShare) {
		r.counting.forget()
		return 0, nil
	}
	if err := r.counting.look(); err != nil || !scarce(removeShare) {
		return 0, err
	}
	return r.counting.remove()
}

// full reports whether stacks, their names or those of kernels take more than half of their maps.
func (r *Reaper) full() bool {
	return slices.ContainsFunc([]*sweeper{r.stacks, r.symbols, r.kernels}, func(s *sweeper) bool { return s != nil && s.full() })
}

// sweep removes stacks first, because they reference the symbols.
func (r *Reaper) sweep(result *Result) error {
	for _, part := range []struct {
		sweeper *sweeper
		removed *int
	}{{r.stacks, &result.Stacks}, {r.symbols, &result.Symbols}, {r.kernels, &result.Kernels}} {
		if part.sweeper == nil {
			continue
		}
		removed, restored, err := part.sweeper.sweep(r.passes)
		*part.removed = removed
		result.Restored += restored
		if err != nil {
			return err
		}
	}
	return nil
}

// processes cleans up after those that have ended.
func (r *Reaper) processes(now time.Duration) (Result, error) {
	var result Result
	fresh, old, stale := map[uint64]bool{}, map[uint64]bool{}, map[uint64]bool{}
	known := map[uint64]bool{}
	processes := 0
	err := mapiter.Entries(r.maps.Processes, func(key, value []byte) {
		processes++
		exit := binary.NativeEndian.Uint64(value[len(value)-8:])
		if exit == 0 {
			return
		}
		id := binary.NativeEndian.Uint64(key)
		known[id] = true
		if !r.done[id] {
			fresh[id] = true
		}
		ago := now - time.Duration(exit)
		if ago > r.grace {
			old[id] = true
		}
		if r.maps.Forget > 0 && ago > r.maps.Forget {
			stale[id] = true
		}
	})
	if err != nil {
		return result, fmt.Errorf("read processes: %w", err)
	}
	for id := range r.done {
		if !known[id] {
			delete(r.done, id)
		}
	}
	if len(fresh) > 0 {
		for _, m := range r.maps.State {
			n, err := remove(m, fresh)
			result.State += n
			if err != nil {
				return result, err
			}
		}
		for id := range fresh {
			r.done[id] = true
		}
	}
	if result.Spans, err = r.spans(now, old); err != nil {
		return result, err
	}
	full := processes > int(r.maps.Processes.MaxEntries())/2
	full = full || r.full() // stacks only become unreferenced when rows are removed
	for _, m := range r.maps.Rows {
		n, err := count(m)
		if err != nil {
			return result, err
		}
		full = full || n > int(m.MaxEntries())/2
	}
	if !full {
		old = stale
	}
	if len(old) == 0 {
		return result, nil
	}
	for _, m := range r.maps.Rows {
		n, err := remove(m, old)
		result.Rows += n
		if err != nil {
			return result, err
		}
	}
	n, err := r.forgetSpans(old)
	result.Spans += n
	if err != nil {
		return result, err
	}
	result.Processes, err = remove(r.maps.Processes, old)
	return result, err
}

// remove deletes the entries of the given processes.
func remove(m *ebpf.Map, processes map[uint64]bool) (int, error) {
	var keys [][]byte
	err := mapiter.Entries(m, func(key, _ []byte) {
		if processes[binary.NativeEndian.Uint64(key)] {
			keys = append(keys, append([]byte(nil), key...))
		}
	})
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", m, err)
	}
	n := 0
	for _, key := range keys {
		there, err := erase(m, key)
		if err != nil {
			return n, err
		}
		if there {
			n++
		}
	}
	return n, nil
}

// erase deletes an entry, and reports whether there was one.
func erase(m *ebpf.Map, key any) (bool, error) {
	switch err := m.Delete(key); {
	case err == nil:
		return true, nil
	case errors.Is(err, ebpf.ErrKeyNotExist):
		return false, nil
	default:
		return false, fmt.Errorf("delete from %s: %w", m, err)
	}
}

func count(m *ebpf.Map) (int, error) {
	n := 0
	if err := mapiter.Entries(m, func(_, _ []byte) { n++ }); err != nil {
		return 0, fmt.Errorf("count %s: %w", m, err)
	}
	return n, nil
}

// Ended returns the processes of processes_by_id that have ended.
func Ended(processes *ebpf.Map) (map[uint64]bool, error) {
	ended := map[uint64]bool{}
	err := mapiter.Entries(processes, func(key, value []byte) {
		if len(value) >= 8 && binary.NativeEndian.Uint64(value[len(value)-8:]) != 0 {
			ended[binary.NativeEndian.Uint64(key)] = true
		}
	})
	if err != nil {
		return nil, fmt.Errorf("read processes: %w", err)
	}
	return ended, nil
}
