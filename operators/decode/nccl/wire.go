// SPDX-License-Identifier: Apache-2.0

// Package nccl has the layout of the rows of the gadget nccl_trace, and identifies
// communicators that were created before attach in the memory of libnccl (identity.go).
package nccl

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// Ring is the number of operations that are kept per communicator: NCCL_RING.
const Ring = 16

// Digests is the number of digests that are kept per communicator: NCCL_DIGESTS.
const Digests = 32

// Flags of an operation.
const (
	Grouped  = 1 << iota // issued at the end of its group
	Failed               // NCCL refused it
	Done                 // DoneNS is valid
	Captured             // a node of a graph: it is not executed
)

// Operation mirrors struct nccl_operation of bpf/nccl/communicators.h. Times are
// nanoseconds since boot.
type Operation struct {
	Seq      uint64 // 1, 2, … of the communicator in its process; 0: none
	Match    uint64 // its number in all ranks
	OpSeq    uint64 // of this kind
	Group    uint64
	EnterNS  uint64
	ReturnNS uint64 // 0: the call, or its group, has not returned
	DoneNS   uint64 // upper bound
	Count    uint64
	Stream   uint64
	Stack    uint64
	TID      uint32
	Peer     int32 // or root; -1: none
	Reduct   uint32
	Op       uint8 // enum nccl_op
	Type     uint8 // ncclDataType_t
	Flags    uint8
	_        uint8
}

// process mirrors Inspektor Gadget's struct gadget_process.
type process struct {
	Comm       [16]byte
	PID, TID   uint32
	MntNS      uint64
	UID, GID   uint32
	ParentComm [16]byte
	PPID, PTID uint32
}

// communicator mirrors struct communicator_row of bpf/nccl/rows.h.
type communicator struct {
	Proc                            process
	Process, Handle                 uint64
	Identity, Parent                uint64
	Name                            [32]byte
	Rank, Size, Device              int32
	Color, Key, ParentRank          int32
	State                           [12]byte
	Late, InGroup, Error            uint32
	Failed                          uint64
	CreatedNS, ExitNS               uint64
	Seq, Collectives, Match, OpSeq  uint64
	Op, Type, Reduction             [16]byte
	Count, Bytes, Stream            uint64
	Peer                            int32
	TID                             uint32
	EnterNS, ReturnNS               uint64
	Stack                           uint64
	DoneSeq, DoneEnterNS, DoneNS    uint64
	DoneCollectives, DoneCollective uint64
	PendingCoveredNS, PendingNS     uint64
	NowNS                           uint64
	Ring                            [Ring]Operation
	Oldest                          Operation
	Digests                         [Digests]uint64
}

// Communicator is one rank of a communicator, from a row of `communicators`.
type Communicator struct {
	PID                  uint32
	Comm                 string
	Process, Handle      uint64
	Identity, Parent     uint64
	Name, State          string
	Rank, Size, Device   int32
	Color, Key           int32
	ParentRank           int32
	Late, InGroup        bool
	Error                uint32
	Failed               uint64
	Seq, Collectives     uint64
	DoneSeq              uint64
	DoneCollectives      uint64
	PendingCoveredNS     uint64
	PendingNS, NowNS     uint64
	ExitNS               uint64
	Newest               Operation // Seq 0: none
	Operations           []Operation
	Oldest               Operation       // the first that was not done when a newer one took its slot; Seq 0: none
	Digests              [Digests]uint64 // as collective.Digests
	Op, Type, ReduceText string
}

// CommunicatorBytes is the size of a row of `communicators`.
var CommunicatorBytes = binary.Size(communicator{})

// DecodeCommunicator reads one row.
func DecodeCommunicator(b []byte) (Communicator, error) {
	var w communicator
	if err := decode(b, &w); err != nil {
		return Communicator{}, fmt.Errorf("read a communicator: %w", err)
	}
	c := Communicator{
		PID: w.Proc.PID, Comm: text(w.Proc.Comm[:]), Process: w.Process, Handle: w.Handle,
		Identity: w.Identity, Parent: w.Parent, Name: text(w.Name[:]), State: text(w.State[:]),
		Rank: w.Rank, Size: w.Size, Device: w.Device, Color: w.Color, Key: w.Key, ParentRank: w.ParentRank,
		Late: w.Late != 0, InGroup: w.InGroup != 0, Error: w.Error, Failed: w.Failed,
		Seq: w.Seq, Collectives: w.Collectives, DoneSeq: w.DoneSeq, DoneCollectives: w.DoneCollectives,
		PendingCoveredNS: w.PendingCoveredNS, PendingNS: w.PendingNS, NowNS: w.NowNS, ExitNS: w.ExitNS,
		Op: text(w.Op[:]), Type: text(w.Type[:]), ReduceText: text(w.Reduction[:]), Oldest: w.Oldest, Digests: w.Digests,
	}
	// Oldest first; entries that were overwritten meanwhile are skipped.
	for age := min(w.Seq, Ring); age > 0; age-- {
		seq := w.Seq - age + 1
		if o := w.Ring[seq%Ring]; o.Seq == seq {
			c.Operations = append(c.Operations, o)
			c.Newest = o
		}
	}
	return c, nil
}

// sum mirrors struct nccl_operation_row.
type sum struct {
	Proc                      process
	Process, Handle, Identity uint64
	Rank, Size                int32
	Op, Type                  [16]byte
	SizeBytes                 uint64
	Calls, Bytes, EnqueueNS   uint64
	Timed, TimedBytes         uint64
	TimedNS                   uint64
}

// Sum is a row of `operations`.
type Sum struct {
	PID                       uint32
	Process, Handle, Identity uint64
	Rank, Size                int32
	Op, Type                  string
	SizeBytes                 uint64
	Calls, Bytes, EnqueueNS   uint64
	Timed, TimedBytes         uint64
	TimedNS                   uint64
}

// SumBytes is the size of a row of `operations`.
var SumBytes = binary.Size(sum{})

// DecodeSum reads one row.
func DecodeSum(b []byte) (Sum, error) {
	var w sum
	if err := decode(b, &w); err != nil {
		return Sum{}, fmt.Errorf("read a sum of operations: %w", err)
	}
	return Sum{w.Proc.PID, w.Process, w.Handle, w.Identity, w.Rank, w.Size, text(w.Op[:]), text(w.Type[:]),
		w.SizeBytes, w.Calls, w.Bytes, w.EnqueueNS, w.Timed, w.TimedBytes, w.TimedNS}, nil
}

// peer mirrors struct nccl_peer_row.
type peer struct {
	Process, Handle, Identity uint64
	PID                       uint32
	Rank, Peer                int32
	Op                        [20]byte
	Issued, Completed         uint64
	EnterNS                   uint64
}

// Peer is a row of `peers`.
type Peer struct {
	PID                       uint32
	Process, Handle, Identity uint64
	Rank, Peer                int32
	Op                        string
	Issued, Completed         uint64
	EnterNS                   uint64
}

// PeerBytes is the size of a row of `peers`.
var PeerBytes = binary.Size(peer{})

// DecodePeer reads one row.
func DecodePeer(b []byte) (Peer, error) {
	var w peer
	if err := decode(b, &w); err != nil {
		return Peer{}, fmt.Errorf("read a peer: %w", err)
	}
	return Peer{w.PID, w.Process, w.Handle, w.Identity, w.Rank, w.Peer, text(w.Op[:]), w.Issued, w.Completed, w.EnterNS}, nil
}

// event mirrors struct operation_event.
type event struct {
	TimestampNS               uint64
	Proc                      process
	Process, Handle, Identity uint64
	Rank, Size, Device        int32
	What                      [12]byte
	Op, Type, Reduction       [16]byte
	Seq, Match, OpSeq         uint64
	Count, Bytes              uint64
	Stream, Group             uint64
	EnterNS, ReturnNS, DoneNS uint64
	Stack                     uint64
	Peer                      int32
	TID                       uint32
}

// Event is a row of `operation_events`.
type Event struct {
	PID                       uint32
	Process, Handle, Identity uint64
	Rank, Size, Device        int32
	What                      string // issued, done or failed
	Op, Type, Reduction       string
	Seq, Match, OpSeq         uint64
	Count, Bytes              uint64
	Stream, Group             uint64
	EnterNS, ReturnNS, DoneNS uint64
	Stack                     uint64
	Peer                      int32
	TID                       uint32
}

// EventBytes is the size of a row of `operation_events`.
var EventBytes = binary.Size(event{})

// DecodeEvent reads one event; a ring buffer may return a few more bytes.
func DecodeEvent(b []byte) (Event, error) {
	var w event
	if err := decode(b, &w); err != nil {
		return Event{}, fmt.Errorf("read an operation: %w", err)
	}
	return Event{w.Proc.PID, w.Process, w.Handle, w.Identity, w.Rank, w.Size, w.Device, text(w.What[:]),
		text(w.Op[:]), text(w.Type[:]), text(w.Reduction[:]), w.Seq, w.Match, w.OpSeq, w.Count, w.Bytes,
		w.Stream, w.Group, w.EnterNS, w.ReturnNS, w.DoneNS, w.Stack, w.Peer, w.TID}, nil
}

func decode(b []byte, to any) error {
	_, err := binary.Decode(b, binary.NativeEndian, to)
	return err
}

func text(b []byte) string {
	b, _, _ = bytes.Cut(b, []byte{0})
	return string(bytes.ToValidUTF8(b, []byte("?")))
}
