// SPDX-License-Identifier: Apache-2.0

package tracer

// CallProcess is the head of rows, totals and events of cuda_kernel and hip_kernel.
type CallProcess struct {
	Comm       [16]byte
	PID, TID   uint32
	MntNS      uint64
	UID, GID   uint32
	ParentComm [16]byte
	PPID, PTID uint32
}

// Call is struct call of bpf/launch/events.h.
type Call struct {
	Proc                       CallProcess
	Process, StackID, Row      uint64
	SpanID                     [24]byte
	RowBootNS, Function        uint64
	Error, Status, Device      int32
	Operation                  [12]byte
	API                        [40]byte
	Direction                  [8]byte
	Calls, CallsError, Sampled uint64
	Bytes, BytesError          uint64
	HostNS, HostNSError        uint64
	DeviceNS                   uint64
	Blocks, Threads, Nodes     uint64
	Stream                     uint64
	Streams                    uint32
	Grid, Block                [3]uint32
	Shared, Varies             uint32
	Time                       [25]uint32
}

// CallTotal is struct call_total of the same.
type CallTotal struct {
	Proc                   CallProcess
	Process, Function      uint64
	Error, Status, Device  int32
	Operation              [12]byte
	API                    [40]byte
	Direction              [8]byte
	Calls, Bytes, HostNS   uint64
	CallsError, BytesError uint64
	HostNSError            uint64
}
