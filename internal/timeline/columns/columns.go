// SPDX-License-Identifier: Apache-2.0

// Package columns writes events as the rows of a Parquet file, with the columns and names
// of package lines. "type" is the kind of a row:
//
//	call, kernel, ran, slept, syscall, sample, resident: as lines
//	inuse: start_boot_ns and end_boot_ns are the moment; on_host is 1 for pinned memory
//	stack: frames, innermost first, one per line, of the number in stack
//
// A row has values only in the columns that its type has in lines. Ids are numbers here.
// The memory of processes and nodes (memory, node) is in the lines only.
package columns

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/internal/format/parquet"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/numa"
	"github.com/gpu-gadgets/gpu-gadgets/internal/timeline/weave"
)

const (
	maxStacks = 65536
	// flushEvery is how long rows are buffered, which a killed run may lose.
	flushEvery = 10 * time.Second
)

// Writer writes to a file. It is for one goroutine.
type Writer struct {
	to     *parquet.Writer
	offset int64 // wall time less boot time, ns
	stacks map[uint64]bool
	flush  time.Time

	kind, comm, function, what, kernel, direction, err    *parquet.Column
	reason, wchan, call, file, frames                     *parquet.Column
	time, start, end, bytes, result, fileBytes, anonBytes *parquet.Column
	launch, gpuStream, graph, node, correlation           *parquet.Column
	process, stream, stack                                *parquet.Column
	pid, tid, device, shared, cpu, onHost                 *parquet.Column
	grid, block                                           [3]*parquet.Column
}

// Create begins the file; offset is wall time less boot time.
func Create(path string, offset time.Duration) (*Writer, error) {
	to, err := parquet.Create(path, map[string]string{
		"clock": "CLOCK_BOOTTIME", "wall_offset_ns": strconv.FormatInt(int64(offset), 10),
	})
	if err != nil {
		return nil, err
	}
	w := &Writer{to: to, offset: int64(offset), stacks: map[uint64]bool{}, flush: time.Now()}
	w.kind, w.time = to.Column("type", parquet.Text), to.Column("time", parquet.Time)
	w.start, w.end = to.Column("start_boot_ns", parquet.Int64), to.Column("end_boot_ns", parquet.Int64)
	w.process, w.pid = to.Column("process", parquet.Uint64), to.Column("pid", parquet.Int32)
	w.tid, w.comm = to.Column("tid", parquet.Int32), to.Column("comm", parquet.Text)
	w.function, w.what = to.Column("function", parquet.Text), to.Column("kind", parquet.Text)
	w.kernel = to.Column("kernel", parquet.Text)
	for n, axis := range []string{"x", "y", "z"} {
		w.grid[n], w.block[n] = to.Column("grid_"+axis, parquet.Int64), to.Column("block_"+axis, parquet.Int64)
	}
	w.shared, w.device = to.Column("shared_bytes", parquet.Int64), to.Column("device", parquet.Int32)
	w.stream, w.bytes = to.Column("stream", parquet.Uint64), to.Column("bytes", parquet.Int64)
	w.direction, w.err = to.Column("direction", parquet.Text), to.Column("error", parquet.Text)
	w.stack, w.frames = to.Column("stack", parquet.Uint64), to.Column("frames", parquet.Text)
	w.cpu, w.reason = to.Column("cpu", parquet.Int32), to.Column("reason", parquet.Text)
	w.wchan, w.call = to.Column("wchan", parquet.Text), to.Column("call", parquet.Text)
	w.file, w.result = to.Column("file", parquet.Text), to.Column("result", parquet.Int64)
	w.fileBytes, w.anonBytes = to.Column("file_bytes", parquet.Int64), to.Column("anon_bytes", parquet.Int64)
	w.onHost, w.launch = to.Column("on_host", parquet.Int32), to.Column("launch_boot_ns", parquet.Int64)
	w.gpuStream, w.graph = to.Column("gpu_stream", parquet.Int64), to.Column("graph", parquet.Int64)
	w.node, w.correlation = to.Column("node", parquet.Uint64), to.Column("correlation", parquet.Int64)
	// Any existing file can be opened.
	if err := to.Flush(); err != nil {
		return nil, errors.Join(err, to.Close())
	}
	return w, nil
}

// Lines is the number of rows written, Unwritten of those that could not be.
func (w *Writer) Lines() uint64     { return w.to.Rows() }
func (w *Writer) Unwritten() uint64 { return w.to.Unwritten() }

func text(c *parquet.Column, s string) {
	if s != "" {
		c.Text(strings.ToValidUTF8(s, "\ufffd"))
	}
}

func number[T uint32 | uint64](c *parquet.Column, n T) {
	if n != 0 {
		c.Int(int64(n))
	}
}

func (w *Writer) begin(kind string, t *weave.Thread, start, end uint64) {
	w.kind.Text(kind)
	w.time.Int(int64(start) + w.offset)
	w.start.Int(int64(start))
	w.end.Int(int64(end))
	w.process.Int(int64(t.Process))
	w.pid.Int(int64(t.PID))
	number(w.tid, t.TID)
	text(w.comm, t.Comm)
}

func (w *Writer) on(d weave.Device) {
	if n := d.Ordinal(); n >= 0 {
		w.device.Int(int64(n))
	}
}

// Call writes a call.
func (w *Writer) Call(c *weave.Call) {
	w.known(c.Stack)
	w.begin("call", &c.Thread, c.Start, c.End)
	text(w.function, c.Function)
	text(w.what, string(c.Kind))
	text(w.kernel, c.Kernel)
	if c.Grid[0] != 0 {
		for n := range 3 {
			w.grid[n].Int(int64(c.Grid[n]))
			w.block[n].Int(int64(c.Block[n]))
		}
	}
	number(w.shared, c.Shared)
	w.on(c.Device)
	number(w.stream, c.Stream)
	number(w.bytes, c.Bytes)
	text(w.direction, c.Direction)
	text(w.err, c.Error)
	w.of(c.Stack)
	w.to.EndRow()
}

// Kernel writes a kernel that the GPU ran.
func (w *Writer) Kernel(k *weave.Kernel) {
	w.known(k.Stack)
	w.begin("kernel", &k.Thread, k.Start, k.End)
	number(w.launch, k.Launch)
	text(w.function, k.Function)
	text(w.kernel, k.Name)
	w.device.Int(int64(k.Device.Ordinal()))
	w.gpuStream.Int(int64(k.Stream))
	number(w.graph, k.Graph)
	if k.Graph != 0 {
		w.node.Int(int64(k.Node))
	}
	w.correlation.Int(int64(k.Correlation))
	w.of(k.Stack)
	w.to.EndRow()
}

// kinds are the types of rows of host activity.
var kinds = [...]string{weave.Ran: "ran", weave.Slept: "slept", weave.Syscall: "syscall", weave.Sample: "sample", weave.Memory: "resident"}

// Host writes what a thread did on the host.
func (w *Writer) Host(h *weave.Host) {
	w.known(h.Stack)
	w.begin(kinds[min(int(h.Kind), len(kinds)-1)], &h.Thread, h.Start, h.End)
	switch h.Kind {
	case weave.Ran:
		w.cpu.Int(int64(h.CPU))
	case weave.Slept:
		text(w.reason, h.Name)
	case weave.Syscall:
		text(w.call, h.Name)
		w.result.Int(h.Result)
	}
	text(w.wchan, h.Reason)
	text(w.file, h.File)
	number(w.bytes, h.Bytes)
	number(w.fileBytes, h.FileBytes)
	number(w.anonBytes, h.AnonBytes)
	w.of(h.Stack)
	w.to.EndRow()
}

// Inuse writes how much of a device's memory a process holds.
func (w *Writer) Inuse(u *weave.Inuse) {
	w.begin("inuse", &weave.Thread{Process: u.Process, PID: u.PID, Comm: u.Comm}, u.At, u.At)
	w.on(u.Device)
	if u.IsHost {
		w.onHost.Int(1)
	}
	w.bytes.Int(int64(u.Bytes))
	w.to.EndRow()
}

// Memory and Node are in the lines only, because they are not events.
func (*Writer) Memory(*weave.Thread, uint64, numa.Process, map[string]uint64) {}
func (*Writer) Node(uint64, numa.Node)                                        {}

// known writes the frames of a stack before its first use.
func (w *Writer) known(s *weave.Stack) {
	if s == nil || s.ID == 0 || w.stacks[s.ID] {
		return
	}
	if len(w.stacks) >= maxStacks {
		clear(w.stacks)
	}
	w.stacks[s.ID] = true
	w.kind.Text("stack")
	w.of(s)
	text(w.frames, strings.Join(s.Labels, "\n"))
	w.to.EndRow()
}

func (w *Writer) of(s *weave.Stack) {
	if s != nil && s.ID != 0 {
		w.stack.Int(int64(s.ID))
	}
}

// Flush writes rows that have been buffered for long enough: small groups make large files.
func (w *Writer) Flush() error {
	if time.Since(w.flush) < flushEvery {
		return nil
	}
	w.flush = time.Now()
	return w.to.Flush()
}

// Close ends the file.
func (w *Writer) Close() error { return w.to.Close() }
