// SPDX-License-Identifier: Apache-2.0

package nccl

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"

	"github.com/gpu-gadgets/gpu-gadgets/internal/ig"
	"github.com/gpu-gadgets/gpu-gadgets/internal/ig/mapiter"
)

const (
	operationsMap = "operations_by_size"
	peersMap      = "operations_by_peer"

	// sweepEvery is the time between two searches for rows of ended communicators.
	sweepEvery = 10 * time.Second
	// sumsKept is the part of a map that such rows may keep: an eighth of what one container may have.
	sumsKept = 32
	// destroyed is COMMUNICATOR_DESTROYED; those before it are in use.
	destroyed = 2
)

// sums removes rows of operations_by_size and operations_by_peer. A communicator's rows have its
// serial: they stay when it is deleted, or when its handle is used again.
type sums struct {
	communicators *ebpf.Map
	tables        []*ebpf.Map
	layout        sumsLayout

	swept time.Time
	// ended are communicators that have rows and are not in use any more, and since when.
	ended map[serialKey]time.Time
}

type serialKey struct{ process, serial uint64 }

// sumsLayout has the offsets of members, in bytes: of struct communicator, and of the keys of both
// tables.
type sumsLayout struct{ serial, state, rowSerial int }

func layoutOfSums(gc operators.GadgetContext) (l sumsLayout, err error) {
	communicators, err := ig.MapSpec(gc, communicatorsMap)
	if err != nil {
		return l, err
	}
	if err := ig.Offsets(communicators.Value, ig.At(&l.serial, "serial", 8), ig.At(&l.state, "state", 4)); err != nil {
		return l, err
	}
	for n, name := range []string{operationsMap, peersMap} {
		table, err := ig.MapSpec(gc, name)
		if err != nil {
			return l, err
		}
		at, err := offsetOfSerial(table.Key)
		if err != nil || n > 0 && at != l.rowSerial {
			return l, errors.Join(err, fmt.Errorf("keys of %s are not as expected", name))
		}
		l.rowSerial = at
	}
	return l, nil
}

func offsetOfSerial(key btf.Type) (int, error) {
	if at, err := ig.Offset(key, "process", 8); err != nil || at != 0 {
		return 0, errors.Join(err, errors.New("a key does not begin with the process"))
	}
	return ig.Offset(key, "serial", 8)
}

// sumRows are rows by the communicator that they belong to.
type sumRows struct {
	table *ebpf.Map
	keys  map[serialKey][][]byte
	all   int
}

func (s *sums) read(table *ebpf.Map) (sumRows, error) {
	r := sumRows{table: table, keys: map[serialKey][][]byte{}}
	if err := mapiter.Entries(table, func(key, _ []byte) {
		r.all++
		of := serialKey{binary.NativeEndian.Uint64(key), binary.NativeEndian.Uint64(key[s.layout.rowSerial:])}
		if of.serial != 0 { // else of no communicator
			r.keys[of] = append(r.keys[of], slices.Clone(key))
		}
	}); err != nil {
		return r, fmt.Errorf("read %s: %w", table, err)
	}
	return r, nil
}

func (r sumRows) kept() int { return int(r.table.MaxEntries()) / sumsKept }

// sweep makes room if programs keep creating and destroying communicators. Rows of those that have
// ended stay for endedGrace, in which they are read several times, and while they are few.
func (s *sums) sweep(now time.Time) error {
	if s == nil || now.Sub(s.swept) < sweepEvery {
		return nil
	}
	s.swept = now
	var all []sumRows
	isMuch := false
	for _, table := range s.tables {
		r, err := s.read(table)
		if err != nil {
			return err
		}
		all = append(all, r)
		isMuch = isMuch || r.all > r.kept()
	}
	if !isMuch {
		clear(s.ended)
		return nil
	}
	if err := s.seeEnded(all, now); err != nil {
		return err
	}
	for _, r := range all {
		if err := s.remove(r, now); err != nil {
			return err
		}
	}
	return nil
}

// seeEnded finds out which communicators are not in use. They are read after their rows, so that
// those of a new one are not taken for others'.
func (s *sums) seeEnded(all []sumRows, now time.Time) error {
	inUse := map[serialKey]bool{}
	if err := mapiter.Entries(s.communicators, func(key, value []byte) {
		if binary.NativeEndian.Uint32(value[s.layout.state:]) < destroyed {
			inUse[serialKey{binary.NativeEndian.Uint64(key), binary.NativeEndian.Uint64(value[s.layout.serial:])}] = true
		}
	}); err != nil {
		return fmt.Errorf("read %s: %w", s.communicators, err)
	}
	was := s.ended
	s.ended = map[serialKey]time.Time{}
	for _, r := range all {
		for of := range r.keys {
			if inUse[of] {
				continue
			}
			since, seen := was[of]
			if !seen {
				since = now
			}
			s.ended[of] = since
		}
	}
	return nil
}

// remove deletes rows of the communicators that ended first.
func (s *sums) remove(r sumRows, now time.Time) error {
	var ended []serialKey
	rows := 0
	for of, keys := range r.keys {
		if _, isEnded := s.ended[of]; isEnded {
			ended = append(ended, of)
			rows += len(keys)
		}
	}
	slices.SortFunc(ended, func(a, b serialKey) int { return s.ended[a].Compare(s.ended[b]) })
	for _, of := range ended {
		if rows <= r.kept() || now.Sub(s.ended[of]) < endedGrace {
			return nil
		}
		for _, key := range r.keys[of] {
			if err := r.table.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
				return fmt.Errorf("delete from %s: %w", r.table, err)
			}
		}
		rows -= len(r.keys[of])
	}
	return nil
}
