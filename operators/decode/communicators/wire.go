// SPDX-License-Identifier: Apache-2.0

package communicators

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/cilium/ebpf"
)

// Names in the gadgets' eBPF objects.
const (
	// Constant switches the programs on.
	Constant = "nccl_owners"
	// SumsMap has the rows of the data source.
	SumsMap    = "sums_by_communicator"
	ownersMap  = "owners_by_number"
	handlesMap = "owner_by_handle"
	numbersMap = "owner_numbers"
)

// Entries of the maps, which have one until communicators are followed. A sum takes about 150
// bytes of the kernel's memory, as it is used.
const (
	maxCommunicators = 16384 // MAX_COMMUNICATORS of bpf/nccl/communicators.h
	maxSums          = 65536 // a communicator has a few, by phase and kind
	maxProcesses     = 8192  // MAX_PROCESSES of bpf/process/rows.h
)

// Enlarge makes room for communicators, before the maps are made.
func Enlarge(specs map[string]*ebpf.MapSpec) {
	specs[ownersMap].MaxEntries = maxCommunicators
	specs[handlesMap].MaxEntries = maxCommunicators
	specs[SumsMap].MaxEntries = maxSums
	specs[numbersMap].MaxEntries = maxProcesses
}

// wire mirrors struct buffer of gadgets/cuda_alloc/buffers.h.
type wire struct {
	Comm            [16]byte
	PID, TID        uint32
	MntNS           uint64
	UID, GID        uint32
	ParentComm      [16]byte
	PPID, PTID      uint32
	Process, Number uint64
	Handle          uint64
	Identity        uint64
	StackID         uint64
	Name            [32]byte
	State           [12]byte
	Rank, Size      int32
	Device          int32
	Kind            [8]byte
	Phase           [16]byte

	InuseBytes, AllocBytes, PeakBytes, InuseObjects                        uint64
	FreedBytes, ImplicitBytes, AllocObjects, FreedObjects, ImplicitObjects uint64
}

// Buffer is a row of `buffers`: what NCCL holds for a communicator, by when it allocated.
type Buffer struct {
	PID                         uint32
	Comm                        string
	Process                     uint64
	Number                      uint64 // in the process; 0: unknown, or none
	Handle, Identity, StackID   uint64
	Name, State                 string
	Rank, Size, Device          int32
	Kind, Phase                 string
	InuseBytes, InuseObjects    uint64
	AllocBytes, AllocObjects    uint64
	FreedBytes, FreedObjects    uint64
	ImplicitBytes, ImplicitObjs uint64
	PeakBytes                   uint64
}

// Decode reads rows as the iterator writes them.
func Decode(b []byte) (all []Buffer, err error) {
	for r := bytes.NewReader(b); ; {
		var w wire
		if err := binary.Read(r, binary.NativeEndian, &w); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("read a row of %s: %w", Source, err)
		}
		all = append(all, Buffer{
			PID: w.PID, Comm: text(w.Comm[:]), Process: w.Process, Number: w.Number, Handle: w.Handle,
			Identity: w.Identity, StackID: w.StackID, Name: text(w.Name[:]), State: text(w.State[:]),
			Rank: w.Rank, Size: w.Size, Device: w.Device, Kind: text(w.Kind[:]), Phase: text(w.Phase[:]),
			InuseBytes: w.InuseBytes, InuseObjects: w.InuseObjects, AllocBytes: w.AllocBytes, AllocObjects: w.AllocObjects,
			FreedBytes: w.FreedBytes, FreedObjects: w.FreedObjects,
			ImplicitBytes: w.ImplicitBytes, ImplicitObjs: w.ImplicitObjects, PeakBytes: w.PeakBytes,
		})
	}
}

func text(b []byte) string {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return string(b)
}
