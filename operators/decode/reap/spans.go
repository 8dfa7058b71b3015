// SPDX-License-Identifier: Apache-2.0

package reap

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/cilium/ebpf"

	"github.com/gpu-gadgets/gpu-gadgets/internal/ig/mapiter"
)

// idleRow is the state of a span's row when it was first seen without memory in use.
type idleRow struct {
	activity uint64
	since    time.Duration
}

// spans makes room for new spans. A process has thousands of short ones, so when the map
// is half full, rows are removed that hold nothing and have not changed during the grace
// period: consumers that sum rows have read them by then.
func (r *Reaper) spans(now time.Duration, ended map[uint64]bool) (int, error) {
	if r.maps.Spans == nil {
		return 0, nil
	}
	entries := 0
	idle := map[string]idleRow{}
	var over []string
	err := mapiter.Entries(r.maps.Spans, func(key, value []byte) {
		entries++
		activity, isIdle := r.maps.Idle(value)
		switch was, known := r.idleSpans[string(key)]; {
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
	r.idleSpans = idle
	if entries <= int(r.maps.Spans.MaxEntries())/2 {
		return 0, nil
	}
	n := 0
	for _, key := range over {
		// An update between the two calls would be lost: it would have to hit a
		// span after its grace period, within these microseconds.
		value, err := r.maps.Spans.LookupBytes([]byte(key))
		if err != nil || value == nil {
			continue
		}
		was, known := idle[key]
		if activity, isIdle := r.maps.Idle(value); known && (!isIdle || activity != was.activity) {
			continue
		}
		for _, m := range []*ebpf.Map{r.maps.Spans, r.maps.Requests} {
			if m == nil {
				continue
			}
			if _, err := erase(m, []byte(key)); err != nil {
				return n, err
			}
		}
		delete(r.idleSpans, key)
		n++
	}
	return n, nil
}

// forgetSpans removes the rows of processes that are forgotten: they would be in use by no one, for good.
func (r *Reaper) forgetSpans(processes map[uint64]bool) (int, error) {
	if r.maps.Spans == nil {
		return 0, nil
	}
	return remove(r.maps.Spans, processes)
}

// IdleAllocations is Idle for struct row of bpf/memory/rows.h.
func IdleAllocations(value []byte) (activity uint64, idle bool) {
	if len(value) < 48 {
		return 0, false
	}
	word := func(i int) uint64 { return binary.NativeEndian.Uint64(value[8*i:]) }
	alloc, freed, implicit := word(1), word(3), word(5)
	return alloc, alloc == freed+implicit
}

// IdleCounts is Idle for struct row of bpf/stack/sample_rows.h and bpf/launch/rows.h, which never
// hold memory.
func IdleCounts(value []byte) (activity uint64, idle bool) {
	if len(value) < 8 {
		return 0, false
	}
	return binary.NativeEndian.Uint64(value), true
}
