// SPDX-License-Identifier: Apache-2.0

// Package reap removes what ended processes leave behind in a gadget's eBPF
// maps: pointers that nobody will free, and, when room gets scarce, rows. The
// kernel marks a process as ended and does no more, because a walk over a map of
// 10⁵ pointers has no place in a process's exit.
package reap

import (
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/cilium/ebpf"
)

// Maps of one gadget. A key's first 8 bytes are the process id in all of them.
type Maps struct {
	// Processes is processes_by_id of bpf/process_rows.h: a process's last 8 bytes
	// are its exit time in ns since boot, 0 while it runs.
	Processes *ebpf.Map
	// State is deleted as soon as its process has ended.
	State []*ebpf.Map
	// Rows are what users look at: they stay until a map is half full.
	Rows []*ebpf.Map
	// Spans are the rows by span, nil if there are none: see Reaper.spans.
	Spans *ebpf.Map
	// Idle reads a row of Spans: what only grows when something happens to it, and
	// whether it holds nothing.
	Idle func(value []byte) (activity uint64, idle bool)
}

// Reaper remembers which processes it has cleaned up after. It is not safe for
// concurrent use.
type Reaper struct {
	maps Maps
	// grace is how long a row stays readable after its process ended.
	grace time.Duration
	done  map[uint64]bool
	idle  map[string]idleRow
}

// New returns a Reaper. grace should cover several reads of the rows.
func New(maps Maps, grace time.Duration) *Reaper {
	return &Reaper{maps: maps, grace: grace, done: make(map[uint64]bool)}
}

// Result says what a pass removed.
type Result struct {
	Processes, State, Rows, Spans int
}

// Pass cleans up once. now is the clock of bpf_ktime_get_boot_ns. A process's
// state is walked over once, so that a pass costs nothing while none ends.
func (r *Reaper) Pass(now time.Duration) (Result, error) {
	var result Result
	fresh, old := map[uint64]bool{}, map[uint64]bool{}
	known := map[uint64]bool{}
	processes := 0
	err := each(r.maps.Processes, func(key, value []byte) {
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
		if now-time.Duration(exit) > r.grace {
			old[id] = true
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
	for _, m := range r.maps.Rows {
		n, err := count(m)
		if err != nil {
			return result, err
		}
		full = full || n > int(m.MaxEntries())/2
	}
	if !full || len(old) == 0 {
		return result, nil
	}
	for _, m := range r.maps.Rows {
		n, err := remove(m, old)
		result.Rows += n
		if err != nil {
			return result, err
		}
	}
	n, err := remove(r.maps.Processes, old)
	result.Processes = n
	return result, err
}

// idleRow is a row of a span as it was when it was first seen without anything in use.
type idleRow struct {
	activity uint64
	since    time.Duration
}

// spans makes room for new spans. They come and go by the thousand while their
// process runs, so that here, when the map is half full, rows go that hold nothing and
// have not changed during the grace time: whoever adds rows up has read them by then.
func (r *Reaper) spans(now time.Duration, ended map[uint64]bool) (int, error) {
	if r.maps.Spans == nil {
		return 0, nil
	}
	entries := 0
	idle := map[string]idleRow{}
	var over []string
	err := each(r.maps.Spans, func(key, value []byte) {
		entries++
		activity, isIdle := r.maps.Idle(value)
		switch was, known := r.idle[string(key)]; {
		case ended[binary.NativeEndian.Uint64(key)]:
			over = append(over, string(key))
		case !isIdle:
		case !known || was.activity != activity:
			idle[string(key)] = idleRow{activity, now}
		default:
			idle[string(key)] = was
			if now-was.since >= r.grace {
				over = append(over, string(key))
			}
		}
	})
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", r.maps.Spans, err)
	}
	r.idle = idle
	if entries <= int(r.maps.Spans.MaxEntries())/2 {
		return 0, nil
	}
	n := 0
	for _, key := range over {
		// What a program adds to it between the two calls would be lost: it would
		// have to come back to a span after the grace time, in these microseconds.
		value, err := r.maps.Spans.LookupBytes([]byte(key))
		if err != nil || value == nil {
			continue
		}
		was, known := idle[key]
		if activity, isIdle := r.maps.Idle(value); known && (!isIdle || activity != was.activity) {
			continue
		}
		if err := r.maps.Spans.Delete([]byte(key)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return n, fmt.Errorf("delete from %s: %w", r.maps.Spans, err)
		}
		delete(r.idle, key)
		n++
	}
	return n, nil
}

// IdleAllocations is Idle for struct row of bpf/cuda_rows.h.
func IdleAllocations(value []byte) (activity uint64, idle bool) {
	if len(value) < 48 {
		return 0, false
	}
	word := func(i int) uint64 { return binary.NativeEndian.Uint64(value[8*i:]) }
	alloc, freed, implicit := word(1), word(3), word(5)
	return alloc, alloc == freed+implicit
}

// IdleSamples is Idle for struct row of bpf/sample_rows.h, which holds nothing ever.
func IdleSamples(value []byte) (activity uint64, idle bool) {
	if len(value) < 8 {
		return 0, false
	}
	return binary.NativeEndian.Uint64(value), true
}

// remove deletes the entries of the given processes.
func remove(m *ebpf.Map, processes map[uint64]bool) (int, error) {
	var keys [][]byte
	err := each(m, func(key, _ []byte) {
		if processes[binary.NativeEndian.Uint64(key)] {
			keys = append(keys, append([]byte(nil), key...))
		}
	})
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", m, err)
	}
	n := 0
	for _, key := range keys {
		switch err := m.Delete(key); {
		case err == nil:
			n++
		case !errors.Is(err, ebpf.ErrKeyNotExist):
			return n, fmt.Errorf("delete from %s: %w", m, err)
		}
	}
	return n, nil
}

func count(m *ebpf.Map) (int, error) {
	n := 0
	if err := each(m, func(_, _ []byte) { n++ }); err != nil {
		return 0, fmt.Errorf("count %s: %w", m, err)
	}
	return n, nil
}

// batch is how many entries one system call reads.
const batch = 4096

// each calls f for every entry; key and value are only valid during the call.
// Entries that come or go meanwhile may be missed.
func each(m *ebpf.Map, f func(key, value []byte)) error {
	keySize, valueSize := int(m.KeySize()), int(m.ValueSize())
	keys := arrays(batch, keySize)
	values := arrays(batch, valueSize)
	var cursor ebpf.MapBatchCursor
	for {
		n, err := m.BatchLookup(&cursor, keys.Interface(), values.Interface(), nil)
		if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return err
		}
		for i := 0; i < n; i++ {
			f(keys.Index(i).Slice(0, keySize).Bytes(), values.Index(i).Slice(0, valueSize).Bytes())
		}
		if err != nil { // ErrKeyNotExist: that was the last batch
			return nil
		}
	}
}

// arrays makes a []([size]byte) of n elements: the batch calls want a slice with
// one element for each entry, and the sizes are the gadget's.
func arrays(n, size int) reflect.Value {
	return reflect.MakeSlice(reflect.SliceOf(reflect.ArrayOf(size, reflect.TypeFor[byte]())), n, n)
}

// Ended is which processes of processes_by_id have ended.
func Ended(processes *ebpf.Map) (map[uint64]bool, error) {
	ended := map[uint64]bool{}
	err := each(processes, func(key, value []byte) {
		if len(value) >= 8 && binary.NativeEndian.Uint64(value[len(value)-8:]) != 0 {
			ended[binary.NativeEndian.Uint64(key)] = true
		}
	})
	if err != nil {
		return nil, fmt.Errorf("read processes: %w", err)
	}
	return ended, nil
}
