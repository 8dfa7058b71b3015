// SPDX-License-Identifier: Apache-2.0

// Package lines writes unprocessed events, one JSON object per line, for analyses of any
// kind. Fields, by "type":
//
//	call: time (RFC 3339 with nanoseconds, UTC, of its start), start_boot_ns and
//	  end_boot_ns (CLOCK_BOOTTIME), process (hex id, not reused), pid, tid, comm,
//	  function, kind (launch, copy, memset, wait, load, span or call), kernel, grid,
//	  block, shared_bytes, device (CUDA ordinal of the current context's, where it is
//	  known), stream (hex; 1 the default one, 2 that of the thread), bytes, direction,
//	  error, stack (hex id)
//	kernel: what the GPU ran, with --device-times: time … comm as above, launch_boot_ns
//	  (of its launch; absent, it was not seen), function (that launched it), kernel,
//	  device, gpu_stream and graph (as CUPTI numbers them), node, correlation, stack
//	ran, slept, syscall, sample: time … comm as above; cpu; reason, wchan; call,
//	  file, result, bytes; stack
//	resident: time … comm, file_bytes, anon_bytes: resident memory, from events
//	inuse: time, boot_ns, process, pid, comm, device (absent where it is not known) or
//	  host (true: pinned memory of the host), bytes: what the process holds from then on,
//	  with --beside cuda_alloc
//	stack: stack (hex id), frames (innermost first); before its first use, and again
//	  after many others
//	memory: time, boot_ns, process, pid, comm, the fields of numa.Process, and every
//	  tenth time node_bytes (by NUMA node)
//	node: time, boot_ns, the fields of numa.Node
//
// Zero and empty values are omitted, except times and devices.
package lines

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/internal/format/file"
	"github.com/gpu-gadgets/gpu-gadgets/internal/format/screen"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/numa"
	"github.com/gpu-gadgets/gpu-gadgets/internal/timeline/weave"
)

const (
	blockBytes = 64 << 10
	maxStacks  = 65536
)

// Writer writes to a file. It is for one goroutine.
type Writer struct {
	to     *os.File
	offset int64 // wall time less boot time, ns
	buffer []byte
	inside int   // lines in buffer
	at     int64 // bytes written: whole lines
	stacks map[uint64]bool

	lines, lost uint64
	failed      error
}

// Create begins the file; offset is wall time less boot time.
func Create(path string, offset time.Duration) (*Writer, error) {
	to, err := file.Create(path)
	if err != nil {
		return nil, err
	}
	return &Writer{to: to, offset: int64(offset), stacks: map[uint64]bool{}}, nil
}

// Lines is the number of lines written, Unwritten of those that could not be.
func (w *Writer) Lines() uint64     { return w.lines }
func (w *Writer) Unwritten() uint64 { return w.lost }

type who struct {
	Process string `json:"process"`
	PID     uint32 `json:"pid"`
	TID     uint32 `json:"tid,omitempty"`
	Comm    string `json:"comm"`
}

func toWho(t *weave.Thread) who {
	return who{strconv.FormatUint(t.Process, 16), t.PID, t.TID, t.Comm}
}

type span struct {
	Time  string `json:"time"`
	Start uint64 `json:"start_boot_ns"`
	End   uint64 `json:"end_boot_ns"`
}

func (w *Writer) wall(boot uint64) string {
	return time.Unix(0, int64(boot)+w.offset).UTC().Format(time.RFC3339Nano)
}

// Call writes a call.
func (w *Writer) Call(c *weave.Call) {
	line := struct {
		Type string `json:"type"`
		span
		who
		Function  string   `json:"function"`
		Kind      string   `json:"kind"`
		Kernel    string   `json:"kernel,omitempty"`
		Grid      []uint32 `json:"grid,omitempty"`
		Block     []uint32 `json:"block,omitempty"`
		Shared    uint32   `json:"shared_bytes,omitempty"`
		Device    *int32   `json:"device,omitempty"`
		Stream    string   `json:"stream,omitempty"`
		Bytes     uint64   `json:"bytes,omitempty"`
		Direction string   `json:"direction,omitempty"`
		Error     string   `json:"error,omitempty"`
		Stack     string   `json:"stack,omitempty"`
	}{
		Type: "call", span: span{w.wall(c.Start), c.Start, c.End}, who: toWho(&c.Thread),
		Function: c.Function, Kind: string(c.Kind), Kernel: c.Kernel, Shared: c.Shared, Bytes: c.Bytes,
		Direction: c.Direction, Error: c.Error, Stack: w.stack(c.Stack),
	}
	if c.Grid[0] != 0 {
		line.Grid, line.Block = c.Grid[:], c.Block[:]
	}
	if n := c.Device.Ordinal(); n >= 0 {
		line.Device = &n
	}
	if c.Stream != weave.NoStream {
		line.Stream = strconv.FormatUint(c.Stream, 16)
	}
	w.put(line)
}

// kinds are the types of lines of host activity.
var kinds = [...]string{weave.Ran: "ran", weave.Slept: "slept", weave.Syscall: "syscall", weave.Sample: "sample", weave.Memory: "resident"}

// Host writes what a thread did on the host.
func (w *Writer) Host(h *weave.Host) {
	line := struct {
		Type string `json:"type"`
		span
		who
		CPU       *uint32 `json:"cpu,omitempty"`
		Reason    string  `json:"reason,omitempty"`
		WChan     string  `json:"wchan,omitempty"`
		Call      string  `json:"call,omitempty"`
		File      string  `json:"file,omitempty"`
		Result    *int64  `json:"result,omitempty"`
		Bytes     uint64  `json:"bytes,omitempty"`
		FileBytes uint64  `json:"file_bytes,omitempty"`
		AnonBytes uint64  `json:"anon_bytes,omitempty"`
		Stack     string  `json:"stack,omitempty"`
	}{
		Type: kinds[min(int(h.Kind), len(kinds)-1)], span: span{w.wall(h.Start), h.Start, h.End}, who: toWho(&h.Thread),
		WChan: h.Reason, File: h.File, Bytes: h.Bytes, FileBytes: h.FileBytes, AnonBytes: h.AnonBytes, Stack: w.stack(h.Stack),
	}
	switch h.Kind {
	case weave.Ran:
		line.CPU = &h.CPU
	case weave.Slept:
		line.Reason = h.Name
	case weave.Syscall:
		line.Call, line.Result = h.Name, &h.Result
	}
	w.put(line)
}

// Inuse writes how much of a device's memory a process holds.
func (w *Writer) Inuse(u *weave.Inuse) {
	line := struct {
		Type string `json:"type"`
		Time string `json:"time"`
		Boot uint64 `json:"boot_ns"`
		who
		Device *int32 `json:"device,omitempty"`
		IsHost bool   `json:"host,omitempty"`
		Bytes  uint64 `json:"bytes"`
	}{
		Type: "inuse", Time: w.wall(u.At), Boot: u.At, who: toWho(&weave.Thread{Process: u.Process, PID: u.PID, Comm: u.Comm}),
		IsHost: u.IsHost, Bytes: u.Bytes,
	}
	if n := u.Device.Ordinal(); n >= 0 {
		line.Device = &n
	}
	w.put(line)
}

// Memory writes the memory of a process; nodes may be nil.
func (w *Writer) Memory(of *weave.Thread, boot uint64, p numa.Process, nodes map[string]uint64) {
	w.put(struct {
		Type string `json:"type"`
		Time string `json:"time"`
		Boot uint64 `json:"boot_ns"`
		who
		numa.Process
		Nodes map[string]uint64 `json:"node_bytes,omitempty"`
	}{"memory", w.wall(boot), boot, toWho(&weave.Thread{Process: of.Process, PID: of.PID, Comm: of.Comm}), p, nodes})
}

// Node writes the memory of a NUMA node.
func (w *Writer) Node(boot uint64, n numa.Node) {
	w.put(struct {
		Type string `json:"type"`
		Time string `json:"time"`
		Boot uint64 `json:"boot_ns"`
		numa.Node
	}{"node", w.wall(boot), boot, n})
}

// stack returns the id of a stack, after writing its frames.
func (w *Writer) stack(s *weave.Stack) string {
	if s == nil || s.ID == 0 {
		return ""
	}
	id := strconv.FormatUint(s.ID, 16)
	if !w.stacks[s.ID] {
		if len(w.stacks) >= maxStacks {
			clear(w.stacks)
		}
		w.stacks[s.ID] = true
		w.put(struct {
			Type   string   `json:"type"`
			Stack  string   `json:"stack"`
			Frames []string `json:"frames"`
		}{"stack", id, s.Labels})
	}
	return id
}

func (w *Writer) put(line any) {
	if w.failed != nil {
		w.lost++
		return
	}
	b, err := json.Marshal(line)
	if err != nil { // not with any value used here
		w.lost++
		return
	}
	w.buffer = append(append(w.buffer, screen.JSON(b)...), '\n')
	w.inside++
	if len(w.buffer) >= blockBytes {
		_ = w.Flush()
	}
}

// Flush writes the buffered lines. After the first error it always returns that error;
// the file then ends with a whole line.
func (w *Writer) Flush() error {
	if w.failed != nil || len(w.buffer) == 0 {
		return w.failed
	}
	_, err := w.to.Write(w.buffer)
	if err != nil {
		w.failed = file.Explain(w.to.Name(), err)
		w.lost += uint64(w.inside)
		_ = w.to.Truncate(w.at) // a pipe cannot be truncated: its reader has the rest, or has exited
	} else {
		w.at += int64(len(w.buffer))
		w.lines += uint64(w.inside)
	}
	w.buffer, w.inside = w.buffer[:0], 0
	return w.failed
}

// Close ends the file.
func (w *Writer) Close() error {
	err := errors.Join(w.Flush(), w.to.Close())
	if w.lost > 0 {
		err = errors.Join(err, fmt.Errorf("%d lines are not in it", w.lost))
	}
	return err
}
