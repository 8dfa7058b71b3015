// SPDX-License-Identifier: Apache-2.0

package procmaps

import (
	"errors"
	"os"
	"sort"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gpu-gadgets/gpu-gadgets/internal/throttle"
)

const (
	// maxSnapshotBytes bounds a snapshot; further mappings are dropped. That of a large Python
	// process is 100 KiB.
	maxSnapshotBytes = 4 << 20
	mappingBytes     = int(unsafe.Sizeof(Mapping{}))
	// maxWanted bounds the wanted mappings for which there is no more room.
	maxWanted = 64
)

// Process identifies a process until the machine restarts; a pid alone is
// reused.
type Process struct {
	PID uint32
	// StartTime is field 22 of /proc/PID/stat: clock ticks since boot.
	StartTime uint64
}

// Snapshot is the code of a process at one moment: its executable mappings, sorted by
// address. It is immutable once returned.
type Snapshot struct {
	Process   Process
	Taken     time.Time
	Mappings  []Mapping
	Truncated bool // it had more

	lines int64         // read of the text, not only of code
	took  time.Duration // processor time of queries
	bytes int           // the memory that Mappings take
}

// Find returns the mapping that covers addr.
func (s *Snapshot) Find(addr uint64) (Mapping, bool) {
	i := sort.Search(len(s.Mappings), func(i int) bool { return s.Mappings[i].End > addr })
	if i == len(s.Mappings) || addr < s.Mappings[i].Start {
		return Mapping{}, false
	}
	return s.Mappings[i], true
}

// Around returns the mappings of files nearest to addr below it and above it, those there are.
func (s *Snapshot) Around(addr uint64) []Mapping {
	i := sort.Search(len(s.Mappings), func(i int) bool { return s.Mappings[i].End > addr })
	var out []Mapping
	for below := i - 1; below >= 0; below-- {
		if s.Mappings[below].IsFile() {
			out = append(out, s.Mappings[below])
			break
		}
	}
	for _, m := range s.Mappings[i:] {
		if m.IsFile() {
			return append(out, m)
		}
	}
	return out
}

// Look reads which code a process has mapped and does not keep it: most processes are of no interest. Mappings for which
// want is true are in the snapshot even if it is truncated, 64 of them; nil: none. With an error it has the process at most,
// without a pid if not even that is known.
//
// The start time is read before and after the maps: if it differs, the pid was reused in between.
func (c *Cache) Look(pid uint32, want func(Mapping) bool) (*Snapshot, error) {
	for try := 0; ; try++ {
		start, err := StartTime(c.cfg.ProcFS, pid)
		if err != nil {
			return &Snapshot{}, err
		}
		s := &Snapshot{Process: Process{pid, start}, Taken: time.Now()}
		s.Mappings, err = c.readWith(pid, func(maps *os.File) ([]Mapping, error) { return c.readCode(maps, s, want) })
		if err != nil {
			return &Snapshot{Process: Process{pid, start}}, err // s may still be written to
		}
		again, err := StartTime(c.cfg.ProcFS, pid)
		if err != nil {
			return &Snapshot{}, err
		}
		if again == start || try > 0 {
			return s, nil
		}
	}
}

// readCode reads the executable mappings of a snapshot: with queries where the kernel has them, or from the text.
func (c *Cache) readCode(maps *os.File, s *Snapshot, want func(Mapping) bool) (out []Mapping, err error) {
	if !c.noQueries.Load() {
		// How many mappings the kernel skips is not known, nor so what that costs.
		took := throttle.Timed(func() { out, err = query(maps, s.collect(want)) })
		if errors.Is(err, errNoQueries) {
			c.noQueries.Store(true)
		} else if s.took = took; !errors.Is(err, unix.ENAMETOOLONG) {
			return out, err
		}
	}
	keep := s.collect(want)
	return parse(maps, func(m Mapping) bool {
		s.lines++
		return m.Perms&Exec != 0 && keep(m)
	})
}

// collect returns which mappings are the snapshot's, which has none yet.
func (s *Snapshot) collect(want func(Mapping) bool) (keep func(Mapping) bool) {
	path, more := "", 0
	s.bytes, s.Truncated = 0, false
	return func(m Mapping) bool {
		bytes := mappingBytes
		if m.Path != path { // else it is the same string
			bytes += len(m.Path)
		}
		if s.bytes+bytes > maxSnapshotBytes {
			s.Truncated = true
			if want == nil || more == maxWanted || !want(m) {
				return false
			}
			more++
		}
		s.bytes, path = s.bytes+bytes, m.Path
		return true
	}
}

// Cost is that of reading it.
func (s *Snapshot) Cost() time.Duration { return Cost(s.lines) + s.took }

// CostOf is that of a Snapshot, by what it returned: one of a process that hangs takes no processor time, but those wait who
// read others after it.
func CostOf(s *Snapshot, err error) time.Duration {
	switch {
	case err == nil:
		return s.Cost()
	case errors.Is(err, ErrStuck):
		return readTimeout
	}
	return Cost(0)
}

// Cost estimates the time that reading the text of so many mappings takes: on a machine at 2.5 GHz 35 ms for 65,000, measured by
// processor time, and 0.1 ms besides. Time by the clock would count the work of others.
func Cost(mappings int64) time.Duration {
	return 100*time.Microsecond + time.Duration(mappings)*550*time.Nanosecond
}
