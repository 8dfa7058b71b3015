// SPDX-License-Identifier: Apache-2.0

package sink

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"

	"github.com/gpu-gadgets/gpu-gadgets/internal/format/file"
	"github.com/gpu-gadgets/gpu-gadgets/internal/format/snapshot"
	"github.com/gpu-gadgets/gpu-gadgets/internal/ig"
	"github.com/gpu-gadgets/gpu-gadgets/internal/ig/mapiter"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

const (
	paramSnapshot = "snapshot-out"
	snapshotEnd   = ".pickle"

	liveMap     = "live_by_pointer"
	mappingsMap = "mappings_by_address"

	// enum alloc_kind of bpf/memory/apis.h.
	kindManaged, kindHost, kindArray, kindVMM, kindPool, kindTensor, kindContext = 2, 3, 4, 5, 6, 7, 8
)

// snapshots writes what processes hold, address by address, as PyTorch's memory snapshot.
type snapshots struct {
	path string
	file *file.File // of the process that holds the most

	live struct {
		ebpf                                                                      *ebpf.Map
		process, pointer, bytes, stack, serial, kind, device, references, foreign int
		requested                                                                 int
	}
	mappings struct {
		ebpf                            *ebpf.Map
		process, address, bytes, serial int
	}
	pools *torchPools
	held  map[uint64]*holding // by process, once it was read
}

// holding is the memory of a process.
type holding struct {
	allocations []snapshot.Allocation
	physical    map[uint64]snapshot.Allocation // by serial: memory that mappings give an address
	isSampled   bool
	pools       map[int32]snapshot.Pool
}

// newSnapshots reads the parameter and the gadget's data sources; nil: not requested.
func newSnapshots(gc operators.GadgetContext, path string) (*snapshots, error) {
	if path == "" {
		return nil, nil
	}
	live, err := ig.MapSpec(gc, liveMap)
	if errors.Is(err, ig.ErrAbsent) {
		return nil, fmt.Errorf("--%s: only cuda_alloc knows what is held", paramSnapshot)
	} else if err != nil {
		return nil, err
	}
	mappings, err := ig.MapSpec(gc, mappingsMap)
	if err != nil {
		return nil, err
	}
	s := &snapshots{path: path}
	if s.pools, err = newTorchPools(gc); err != nil {
		return nil, fmt.Errorf("--%s: %w", paramSnapshot, err)
	}
	l, m := &s.live, &s.mappings
	if err := errors.Join(
		ig.Offsets(live.Key, ig.At(&l.process, "process", 8), ig.At(&l.pointer, "pointer", 8)),
		ig.Offsets(live.Value, ig.At(&l.bytes, "size_bytes", 8), ig.At(&l.stack, "stack", 8), ig.At(&l.serial, "serial", 8),
			ig.At(&l.kind, "kind", 1), ig.At(&l.device, "device", 4), ig.At(&l.references, "references", 4),
			ig.At(&l.foreign, "foreign", 1), ig.At(&l.requested, "handle", 8)),
		ig.Offsets(mappings.Key, ig.At(&m.process, "process", 8), ig.At(&m.address, "address", 8)),
		ig.Offsets(mappings.Value, ig.At(&m.bytes, "size_bytes", 8), ig.At(&m.serial, "serial", 8)),
	); err != nil {
		return nil, fmt.Errorf("--%s: %w", paramSnapshot, err)
	}
	return s, nil
}

// open finds out whether the file can be written.
func (s *snapshots) open() (err error) {
	if s == nil {
		return nil
	}
	if s.file, err = file.Prepare(s.path); err != nil {
		return fmt.Errorf("--%s: %w", paramSnapshot, err)
	}
	return nil
}

// start finds the maps, which are there once the programs are loaded.
func (s *snapshots) start(gc operators.GadgetContext) (err error) {
	if s == nil {
		return nil
	}
	if s.live.ebpf, err = ig.Map(gc, liveMap); err == nil {
		s.mappings.ebpf, err = ig.Map(gc, mappingsMap)
	}
	if err == nil {
		err = s.pools.start(gc)
	}
	if err != nil {
		s.live.ebpf = nil // nothing is read
		return fmt.Errorf("--%s: %w", paramSnapshot, err)
	}
	return nil
}

// read takes in what is alive now, of these processes. The maps change meanwhile.
func (s *snapshots) read(isWanted func(process uint64) bool) error {
	booted := time.Now().Add(-ig.SinceBoot())
	s.held = map[uint64]*holding{}
	long := binary.NativeEndian.Uint64
	word := binary.NativeEndian.Uint32
	if err := mapiter.Entries(s.live.ebpf, func(key, value []byte) {
		process, kind := long(key[s.live.process:]), uint32(value[s.live.kind])
		// Pinned memory is the host's; what was imported belongs to another process; a
		// context has no address.
		if !isWanted(process) || kind == kindHost || kind == kindContext || value[s.live.foreign] != 0 {
			return
		}
		h := s.held[process]
		if h == nil {
			h = &holding{physical: map[uint64]snapshot.Allocation{}, pools: map[int32]snapshot.Pool{}}
			s.held[process] = h
		}
		serial := long(value[s.live.serial:])
		a := snapshot.Allocation{
			Address: long(key[s.live.pointer:]), Size: long(value[s.live.bytes:]), Device: int32(word(value[s.live.device:])),
			StackID: long(value[s.live.stack:]), At: booted.Add(time.Duration(serial >> 8)), // see bpf/memory/inflight.h
			IsTensor: kind == kindTensor, IsUnplaced: kind == kindArray, IsOther: kind == kindManaged || kind == kindPool,
		}
		if kind == kindVMM {
			h.physical[a.Address] = a // the key is its serial
			return
		}
		if a.IsTensor { // with --waste: bpf/torch/requested.h
			a.Requested = long(value[s.live.requested:])
		}
		h.isSampled = h.isSampled || a.IsTensor && word(value[s.live.references:]) > 1
		h.allocations = append(h.allocations, a)
	}); err != nil {
		return fmt.Errorf("read %s: %w", liveMap, err)
	}
	if err := s.readMappings(); err != nil {
		return err
	}
	return s.pools.read(func(process uint64, device int32, pool snapshot.Pool) {
		if h := s.held[process]; h != nil {
			h.pools[device] = pool
		}
	})
}

// readMappings gives physical memory its addresses. Mapped twice, it is where it is mapped
// first; not mapped, it is held all the same.
func (s *snapshots) readMappings() error {
	long := binary.NativeEndian.Uint64
	type place struct{ address, bytes uint64 }
	places := map[uint64]map[uint64]place{}
	if err := mapiter.Entries(s.mappings.ebpf, func(key, value []byte) {
		process, serial := long(key[s.mappings.process:]), long(value[s.mappings.serial:])
		at := place{long(key[s.mappings.address:]), long(value[s.mappings.bytes:])}
		if s.held[process] == nil {
			return
		}
		if places[process] == nil {
			places[process] = map[uint64]place{}
		}
		if known, ok := places[process][serial]; !ok || at.address < known.address {
			places[process][serial] = at
		}
	}); err != nil {
		return fmt.Errorf("read %s: %w", mappingsMap, err)
	}
	for process, h := range s.held {
		for serial, a := range h.physical {
			if at, ok := places[process][serial]; ok {
				a.Address, a.IsPiece = at.address, true
			} else {
				a.IsUnplaced = true
			}
			h.allocations = append(h.allocations, a)
		}
		// In the order of the maps, which is none.
		slices.SortFunc(h.allocations, func(a, b snapshot.Allocation) int { return a.At.Compare(b.At) })
	}
	return nil
}

// readSnapshot is called while the gadget's maps are still there, with i.mu held.
func (i *instance) readSnapshot() error {
	if i.snapshots == nil || i.snapshots.live.ebpf == nil {
		return nil
	}
	if err := i.snapshots.read(func(process uint64) bool { return i.processes[process].PID != 0 }); err != nil {
		return fmt.Errorf("--%s: %w", paramSnapshot, err)
	}
	for process, h := range i.snapshots.held {
		pid := i.processes[process].PID
		for n := range h.allocations {
			a := &h.allocations[n]
			a.Stack = i.stacks.Stack(process, pid, a.StackID).Stack
		}
	}
	return nil
}

// writeSnapshots writes a file for each process: the one that holds the most gets the name,
// the others their id in it. PyTorch has one process in a file, too.
func (i *instance) writeSnapshots(gc operators.GadgetContext) error {
	s := i.snapshots
	if s == nil || s.file == nil {
		return nil
	}
	defer func() { s.file = nil }()
	type one struct {
		process profile.Process
		*snapshot.Snapshot
	}
	var all []one
	for process, h := range s.held {
		all = append(all, one{i.processes[process], snapshot.New(h.allocations, h.isSampled, h.pools)})
	}
	slices.SortFunc(all, func(a, b one) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.process.PID, b.process.PID))
	})
	if len(all) == 0 {
		all = append(all, one{Snapshot: snapshot.New(nil, false, nil)})
		gc.Logger().Warnf("sink: --%s: no process holds memory any more that was allocated during the run", paramSnapshot)
	}
	var errs []error
	for n, of := range all {
		path, write := s.path, s.file.Commit
		if n > 0 {
			path = fmt.Sprintf("%s.%d%s", strings.TrimSuffix(s.path, snapshotEnd), of.process.PID, snapshotEnd)
			write = func(of func(io.Writer) error) error { return file.Write(path, of) }
		}
		if err := write(func(w io.Writer) error { return of.Write(w) }); err != nil {
			errs = append(errs, fmt.Errorf("--%s: %w", paramSnapshot, err))
			continue
		}
		if of.IsSampled {
			gc.Logger().Warnf("sink: --%s: tensors of process %d were sampled, so that %s has segments only", paramSnapshot, of.process.PID, path)
		}
		gc.Logger().Infof("sink: %s has %s of %s[%d], %s of it in use", path, profile.FormatBytes(int64(of.Bytes)), of.process.Comm,
			of.process.PID, profile.FormatBytes(int64(of.ActiveBytes)))
	}
	return errors.Join(errs...)
}

func (s *snapshots) discard() {
	if s != nil && s.file != nil {
		s.file.Discard()
		s.file = nil
	}
}
