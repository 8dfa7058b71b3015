// SPDX-License-Identifier: Apache-2.0

// Package journal reads the journal that the simulated CUDA driver (examples/simcuda)
// wrote while a workload ran, and adds it up: the truth that a tracer's numbers are
// compared with. One file is one process image; its records are in order of execution.
// The layout is that of ../journal.h.
package journal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"
)

// Kind is the kind of an allocation, numbered as enum alloc_kind in bpf/memory/apis.h.
type Kind uint8

// The kinds of enum alloc_kind. None is the kind of calls that hold nothing.
const (
	None Kind = iota
	Device
	Managed
	Host
	Array
	VMM
	Pool
	Tensor  // a block of simtorch's pool
	Context // of size 0: the driver does not say how large it is
)

var kindNames = [...]string{"none", "device", "managed", "host", "array", "vmm", "pool", "tensor", "context"}

// String is the kind's name in lower case, as tracers print it.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind%d", uint8(k))
}

// Type is the effect of a record on memory in use.
type Type uint8

const (
	// Call has no effect on memory in use: a failed call, or one about a context.
	Call Type = iota + 1
	// Alloc begins an allocation.
	Alloc
	// Free ends an allocation by a call that frees.
	Free
	// Implicit ends an allocation together with its context.
	Implicit
	// Work is a call that launches, copies, waits or names; it holds nothing.
	Work
	// Collective is a call of NCCL (examples/simnccl). Ptr is the communicator, Context
	// its identity, Device its rank, Size the count, Kind the type, AllocSeq the number
	// of the collective, or of the send or receive of its pair; Nested: in a group.
	Collective Type = 6
	// Held is physical memory of HIP that was released and unmapped; its address range holds it.
	Held Type = 7
)

// Flags of a record.
const (
	First       = 1 << iota // the first record of its driver call
	Injected                // failed by SIMCUDA_FAIL_EVERY
	Nested                  // by an exported entry that another one called
	UnknownSize             // an import, whose size the caller does not know
)

// Results of interest, as CUresult numbers them.
const (
	Success     = 0
	OutOfMemory = 2
)

// UnknownDevice is the device of memory that is on none, or not known.
const UnknownDevice = -1

// Header describes one process image.
type Header struct {
	PID        uint32
	StartTicks uint64 // since boot, as field 22 of /proc/PID/stat
	OpenedNS   uint64 // CLOCK_MONOTONIC
	Lost       uint64 // records that did not fit the disk: the sums are short
	Capacity   uint64 // bytes per device
	Devices    uint32
	Image      uint32 // 0, 1, …: one more with each exec of the same process
	Ended      bool   // the library was unloaded or flushed; false after SIGKILL
	Comm       string
	APIs       []string // names by number; 0 is none
}

// Record is one line of the truth.
type Record struct {
	Seq      uint64 // 1, 2, … in the process
	TimeNS   uint64 // CLOCK_MONOTONIC
	Tag      uint64 // of the calling thread
	Ptr      uint64 // pointer or handle
	Size     uint64 // bytes held, or requested by a failed call
	Context  uint64 // owner; 0 for physical memory
	AllocSeq uint64 // of Free and Implicit: the Alloc record's Seq; of Work: nodes of the graph
	Cause    uint64 // of Implicit: the Seq of the call's own record; of Work: FNV-1a of the kernel's name
	TID      uint32
	Result   int32
	Device   int32
	API      uint16
	Type     Type
	Kind     Kind
	Flags    uint8

	// Of Work. Ptr is the kernel's handle, Size the bytes of a copy.
	Direction   uint8 // enum copy_direction of bpf/launch/apis.h
	Captured    bool  // it became a node of a graph
	Grid, Block [3]uint32
	SharedBytes uint32
	Stream      uint64 // 1: the default stream, 2: of the thread, 0: none
	StartNS     uint64 // CLOCK_MONOTONIC; TimeNS is the end

	// Of Collective, with Stream (its handle) and StartNS.
	Peer, Reduction int32 // root or peer, ncclRedOp_t; -1: none
}

// Journal is one file.
type Journal struct {
	Header
	Records []Record
}

// ErrFormat is returned by Parse for bytes that are not a journal.
var ErrFormat = errors.New("not a simcuda journal")

const (
	headerSize = 65536
	namesAt    = 256
	recordSize = 128
)

// Parse reads a journal file's bytes. The file of a living process may be longer
// than its records; the header counts them.
func Parse(b []byte) (*Journal, error) {
	if len(b) < headerSize || !bytes.Equal(b[:8], []byte("SIMCUDA1")) {
		return nil, ErrFormat
	}
	le := binary.LittleEndian
	if v := le.Uint32(b[8:]); v != 1 {
		return nil, fmt.Errorf("%w: version %d", ErrFormat, v)
	}
	if h, r := le.Uint32(b[12:]), le.Uint32(b[16:]); h != headerSize || r != recordSize {
		return nil, fmt.Errorf("%w: header of %d bytes, records of %d", ErrFormat, h, r)
	}
	j := &Journal{Header: Header{
		PID:        le.Uint32(b[20:]),
		StartTicks: le.Uint64(b[24:]),
		OpenedNS:   le.Uint64(b[32:]),
		Lost:       le.Uint64(b[48:]),
		Capacity:   le.Uint64(b[56:]),
		Devices:    le.Uint32(b[64:]),
		Ended:      le.Uint32(b[68:]) == 1,
		Comm:       string(bytes.TrimRight(b[72:88], "\x00")),
		Image:      le.Uint32(b[88:]),
	}}
	names := b[namesAt:headerSize]
	for n := le.Uint32(b[92:]); n > 0; n-- {
		name, rest, found := bytes.Cut(names, []byte{0})
		if !found {
			return nil, fmt.Errorf("%w: names past the header", ErrFormat)
		}
		j.APIs, names = append(j.APIs, string(name)), rest
	}
	count, body := le.Uint64(b[40:]), b[headerSize:]
	if count > uint64(len(body)/recordSize) {
		return nil, fmt.Errorf("%w: %d records in %d bytes", ErrFormat, count, len(body))
	}
	j.Records = make([]Record, count)
	for i := range j.Records {
		r := body[i*recordSize:]
		j.Records[i] = Record{
			Seq: le.Uint64(r), TimeNS: le.Uint64(r[8:]), Tag: le.Uint64(r[16:]),
			Ptr: le.Uint64(r[24:]), Size: le.Uint64(r[32:]), Context: le.Uint64(r[40:]),
			AllocSeq: le.Uint64(r[48:]), Cause: le.Uint64(r[56:]),
			TID: le.Uint32(r[64:]), Result: int32(le.Uint32(r[68:])),
			Device: int32(le.Uint32(r[72:])), API: le.Uint16(r[76:]),
			Type: Type(r[78]), Kind: Kind(r[79]), Flags: r[80],
		}
		if w := &j.Records[i]; w.Type == Work {
			w.Direction, w.Captured = r[81], r[82] != 0
			for k := range 3 {
				w.Grid[k], w.Block[k] = le.Uint32(r[84+4*k:]), le.Uint32(r[96+4*k:])
			}
			w.SharedBytes, w.Stream, w.StartNS = le.Uint32(r[108:]), le.Uint64(r[112:]), le.Uint64(r[120:])
		}
		if c := &j.Records[i]; c.Type == Collective {
			c.Peer, c.Reduction = int32(le.Uint32(r[84:])), int32(le.Uint32(r[88:]))
			c.Stream, c.StartNS = le.Uint64(r[112:]), le.Uint64(r[120:])
		}
	}
	return j, nil
}

// ReadFile reads one journal.
func ReadFile(path string) (*Journal, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read journal: %w", err)
	}
	j, err := Parse(b)
	if err != nil {
		return nil, fmt.Errorf("read journal %s: %w", path, err)
	}
	return j, nil
}

// ReadDir reads all journals of a directory, ordered by pid, start and image.
func ReadDir(dir string) ([]*Journal, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.journal"))
	if err != nil {
		return nil, fmt.Errorf("list journals: %w", err)
	}
	var all []*Journal
	for _, path := range paths {
		j, err := ReadFile(path)
		if err != nil {
			return nil, err
		}
		all = append(all, j)
	}
	sort.Slice(all, func(a, b int) bool {
		x, y := all[a].Process(), all[b].Process()
		return x.less(y)
	})
	return all, nil
}

// APIName is the symbol with a number of Record.API.
func (h *Header) APIName(api uint16) string {
	if int(api) < len(h.APIs) {
		return h.APIs[api]
	}
	return fmt.Sprintf("api%d", api)
}
