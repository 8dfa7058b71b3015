// SPDX-License-Identifier: Apache-2.0

package readings

import (
	"time"

	"github.com/cilium/ebpf"
)

// pauseMap is the map of bpf/program/reading_pause.h, and pausedUntil and leftOut its indices.
const (
	pauseMap             = "reading_pause"
	pausedUntil, leftOut = uint32(0), uint32(1)
)

// pause makes programs leave out rows. A nil one, and one without a map, does nothing.
type pause struct {
	m     *ebpf.Map
	begun bool   // once
	count uint64 // of entries that were left out
}

// until makes the programs leave out rows until a time since boot; 0: no more.
func (p *pause) until(at time.Duration) error {
	if p == nil || p.m == nil {
		return nil
	}
	p.begun = true
	return p.m.Update(pausedUntil, uint64(max(at, 0)), ebpf.UpdateAny)
}

// leftOut reports whether rows have been left out since it was called last. A pause may end in the middle
// of a reading.
func (p *pause) leftOut() bool {
	if p == nil || !p.begun {
		return false
	}
	var count uint64
	if err := p.m.Lookup(leftOut, &count); err != nil || count == p.count {
		return false
	}
	p.count = count
	return true
}
