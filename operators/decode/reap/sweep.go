// SPDX-License-Identifier: Apache-2.0

package reap

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/gpu-gadgets/gpu-gadgets/internal/ig/mapiter"
)

const (
	// An entry is removed after this many consecutive sweeps without a reference.
	unnamedSweeps = 2
	// Removed entries are kept for this many passes, five minutes, and restored if they are
	// referenced again: a program that found the entry may use its id a little later.
	keptPasses = 60
	// maxKept bounds the kept entries, in bytes: those that have been kept the longest go, after at least
	// so many passes. Entries that do not fit stay in the map.
	maxKept     = 16 << 20
	leastPasses = 12
)

// sweeper removes unreferenced entries from a map, like a conservative garbage collector:
// keys are 64-bit hashes, and any equal 8 bytes in the referencing maps keep an entry.
// The eBPF programs do not take part, so an event has no extra cost.
type sweeper struct {
	target  *ebpf.Map
	namedBy []*ebpf.Map
	// also is another sweeper whose kept entries reference ours.
	also *sweeper

	unnamed map[uint64]int // id → sweeps without a reference
	kept    map[uint64]*keptEntry
	order   []keptID // of those that were kept, the oldest first
	bytes   int
	entries int // at the last sweep
	grown   int // per pass, from the sweep before to the last
	pass    int // of the last sweep
}

type keptID struct {
	id   uint64
	pass int // as of its entry, unless that was restored, or dropped
}

type keptEntry struct {
	value []byte // without the zeros at its end
	pass  int    // when it was removed
}

func newSweeper(target *ebpf.Map, namedBy []*ebpf.Map, also *sweeper) *sweeper {
	return &sweeper{target: target, namedBy: namedBy, also: also, unnamed: map[uint64]int{}, kept: map[uint64]*keptEntry{}}
}

// full reports whether the map was more than half full at the last sweep.
func (s *sweeper) full() bool { return s.entries > int(s.target.MaxEntries())/2 }

// passesUntilFull is after how many passes the map is half full if it grows as it did.
func (s *sweeper) passesUntilFull() int {
	if s.grown <= 0 {
		return sweepEvery
	}
	return max((int(s.target.MaxEntries())/2-s.entries)/s.grown, 1)
}

// sweep removes at most the entries beyond half of the map's size, and returns how many
// were removed and how many restored.
func (s *sweeper) sweep(pass int) (removed, restored int, err error) {
	ids := map[uint64]bool{}
	if err := mapiter.Entries(s.target, func(key, _ []byte) { ids[binary.NativeEndian.Uint64(key)] = true }); err != nil {
		return 0, 0, fmt.Errorf("read %s: %w", s.target, err)
	}
	s.grown = (len(ids) - s.entries) / max(pass-s.pass, 1)
	s.entries, s.pass = len(ids), pass
	if !s.full() && len(s.kept) == 0 {
		clear(s.unnamed)
		return 0, 0, nil
	}
	named := map[uint64]bool{} // of those kept
	mark := func(bytes []byte) {
		for ; len(bytes) >= 8; bytes = bytes[8:] {
			id := binary.NativeEndian.Uint64(bytes)
			delete(ids, id)
			if s.kept[id] != nil {
				named[id] = true
			}
		}
	}
	for _, m := range s.namedBy {
		if err := mapiter.Entries(m, func(key, value []byte) { mark(key); mark(value) }); err != nil {
			return 0, 0, fmt.Errorf("read %s: %w", m, err)
		}
	}
	if s.also != nil {
		for _, entry := range s.also.kept {
			mark(entry.value)
		}
	}
	if restored, err = s.restore(pass, named); err != nil {
		return 0, restored, err
	}
	for id := range s.unnamed {
		if !ids[id] {
			delete(s.unnamed, id)
		}
	}
	for id := range ids {
		if s.unnamed[id]++; s.unnamed[id] < unnamedSweeps || !s.full() {
			continue
		}
		gone, err := s.remove(pass, id)
		if err != nil {
			return removed, restored, err
		}
		if !gone {
			break // no room to keep more
		}
		removed++
	}
	return removed, restored, nil
}

// restore puts back entries that are referenced again, and drops those that have been
// kept for long.
func (s *sweeper) restore(pass int, named map[uint64]bool) (n int, err error) {
	for id, entry := range s.kept {
		if !named[id] && pass-entry.pass <= keptPasses {
			continue
		}
		if named[id] {
			value := make([]byte, s.target.ValueSize())
			copy(value, entry.value)
			// It may exist already: the program stored the same again.
			if err := s.target.Update(id, value, ebpf.UpdateNoExist); err != nil && !errors.Is(err, ebpf.ErrKeyExist) {
				return n, fmt.Errorf("put back into %s: %w", s.target, err)
			}
			n++
		}
		s.drop(id)
	}
	for len(s.order) > 0 && s.kept[s.order[0].id] == nil {
		s.order = s.order[1:]
	}
	return n, nil
}

func (s *sweeper) remove(pass int, id uint64) (bool, error) {
	value, err := s.target.LookupBytes(id)
	if err != nil || value == nil {
		return true, err
	}
	for len(value) > 0 && value[len(value)-1] == 0 {
		value = value[:len(value)-1]
	}
	if !s.makeRoom(pass, len(value)) {
		return false, nil
	}
	if _, err := erase(s.target, id); err != nil {
		return false, err
	}
	s.kept[id] = &keptEntry{value: append([]byte(nil), value...), pass: pass}
	s.order = append(s.order, keptID{id, pass})
	s.bytes += len(value)
	s.entries--
	delete(s.unnamed, id)
	return true, nil
}

// makeRoom drops what has been kept the longest, until there is room for so many bytes.
func (s *sweeper) makeRoom(pass, bytes int) bool {
	for s.bytes+bytes > maxKept && len(s.order) > 0 {
		oldest := s.order[0]
		if entry := s.kept[oldest.id]; entry != nil && entry.pass == oldest.pass {
			if pass-entry.pass < leastPasses {
				return false
			}
			s.drop(oldest.id)
		}
		s.order = s.order[1:]
	}
	return s.bytes+bytes <= maxKept
}

func (s *sweeper) drop(id uint64) {
	s.bytes -= len(s.kept[id].value)
	delete(s.kept, id)
}
