// SPDX-License-Identifier: Apache-2.0

// Package jsonl writes one JSON object per line: a row of the profile whenever
// it has changed, and every refused allocation. It is meant for jq, DuckDB and
// the like, so every line stands alone. Fields, by "type":
//
//	alloc: time (RFC 3339 with nanoseconds, UTC), process (hex id of the
//	  process, not reused), pid, comm, namespace, pod, container (left out
//	  when empty), row, kind, device (-1: unknown), the nine counters of the
//	  `allocs` table (cumulative), stack
//	sample: time, process … row as above, tid (left out when rows are
//	  not by thread), samples and gil_samples (cumulative), stack
//	call: time, process … row as above, operation (with the direction of copies),
//	  device (-1: unknown), calls, launches, copied_bytes, host_ns, wait_ns, and with
//	  --device-times kernels and device_ns (cumulative), stack
//	oom: time, process … container as above, api, error, refused_by (driver, torch, or a
//	  library such as libvgpu.so), device (-1: unknown, or memory of the host), requested_bytes, inuse_bytes (of the
//	  device), pool_allocated_bytes (of PyTorch's pool, where that refused), stack, holders: array of {bytes, stack}, largest first
//
// row (16 hexadecimal digits) identifies a row of the profile: the last line with it is its state, and rows do not
// overlap. Two rows may have all else in common but their numbers: calls with other results, and stacks with the
// same names, of two calls in one function.
//
// Each has span_id (16 hexadecimal digits) where a span of a trace is known.
//
// A stack is an array of {function, file, line, kind, library}, innermost call first;
// file and line are left out when unknown; kind is python, native, trampoline, kernel (of
// the GPU) or unknown; library is true for Python code that is not the program's own
// (--library-paths), and left out for all else.
package jsonl

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/internal/format/screen"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/labels"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
)

// Encoder writes lines to one writer. It must not be used concurrently.
type Encoder struct {
	json *json.Encoder
	line bytes.Buffer
	to   io.Writer
}

// NewEncoder writes to w, one Write per line.
func NewEncoder(w io.Writer) *Encoder {
	e := &Encoder{to: w}
	e.json = json.NewEncoder(&e.line)
	e.json.SetEscapeHTML(false)
	return e
}

type process struct {
	Process   string `json:"process"`
	PID       uint32 `json:"pid"`
	Comm      string `json:"comm"`
	Namespace string `json:"namespace,omitempty"`
	Pod       string `json:"pod,omitempty"`
	Container string `json:"container,omitempty"`

	Labels map[string]string `json:"labels,omitempty"`
}

type frame struct {
	Function string `json:"function"`
	File     string `json:"file,omitempty"`
	Line     uint32 `json:"line,omitempty"`
	Kind     string `json:"kind"`
	Library  bool   `json:"library,omitempty"`
}

type alloc struct {
	Type string `json:"type"`
	Time string `json:"time"`
	process
	Row             string  `json:"row"`
	Kind            string  `json:"kind"`
	Device          int32   `json:"device"`
	AllocBytes      int64   `json:"alloc_bytes"`
	AllocObjects    int64   `json:"alloc_objects"`
	FreedBytes      int64   `json:"freed_bytes"`
	FreedObjects    int64   `json:"freed_objects"`
	ImplicitBytes   int64   `json:"implicit_bytes"`
	ImplicitObjects int64   `json:"implicit_objects"`
	InuseBytes      int64   `json:"inuse_bytes"`
	InuseObjects    int64   `json:"inuse_objects"`
	PeakBytes       int64   `json:"peak_bytes"`
	Span            string  `json:"span_id,omitempty"`
	Stack           []frame `json:"stack"`
}

type sample struct {
	Type string `json:"type"`
	Time string `json:"time"`
	process
	Row        string  `json:"row"`
	TID        uint32  `json:"tid,omitempty"`
	Samples    int64   `json:"samples"`
	GILSamples int64   `json:"gil_samples"`
	Span       string  `json:"span_id,omitempty"`
	Stack      []frame `json:"stack"`
}

type call struct {
	Type string `json:"type"`
	Time string `json:"time"`
	process
	Row             string  `json:"row"`
	Operation       string  `json:"operation"`
	Device          int32   `json:"device"`
	Calls           int64   `json:"calls"`
	Launches        int64   `json:"launches"`
	CopiedBytes     int64   `json:"copied_bytes"`
	HostNanoseconds int64   `json:"host_ns"`
	WaitNanoseconds int64   `json:"wait_ns"`
	Kernels         int64   `json:"kernels,omitempty"`
	DeviceTime      int64   `json:"device_ns,omitempty"`
	Span            string  `json:"span_id,omitempty"`
	Stack           []frame `json:"stack"`
}

type oom struct {
	Type string `json:"type"`
	Time string `json:"time"`
	process
	API            string   `json:"api"`
	Error          string   `json:"error"`
	RefusedBy      string   `json:"refused_by,omitempty"`
	Device         int32    `json:"device"`
	RequestedBytes int64    `json:"requested_bytes"`
	InuseBytes     int64    `json:"inuse_bytes"`
	PoolBytes      int64    `json:"pool_allocated_bytes,omitempty"` // by the account of PyTorch's pool, where that refused
	Span           string   `json:"span_id,omitempty"`
	Stack          []frame  `json:"stack"`
	Holders        []holder `json:"holders"`
}

type holder struct {
	Bytes int64   `json:"bytes"`
	Stack []frame `json:"stack"`
}

// Row writes the state of one row of memory at a time.
func (e *Encoder) Row(at time.Time, id profile.RowID, r profile.Row) error {
	return e.encode(alloc{
		Type: "alloc", Time: timestamp(at), process: toProcess(r.Process), Row: id.Hash(),
		Kind: r.Kind, Device: r.Device,
		AllocBytes: r.AllocBytes, AllocObjects: r.AllocObjects,
		FreedBytes: r.FreedBytes, FreedObjects: r.FreedObjects,
		ImplicitBytes: r.ImplicitBytes, ImplicitObjects: r.ImplicitObjects,
		InuseBytes: r.InuseBytes, InuseObjects: r.InuseObjects,
		PeakBytes: r.PeakBytes, Span: r.Span.String(),
		Stack: toFrames(r.Stack),
	})
}

// Sample writes the state of one row of a profile of time.
func (e *Encoder) Sample(at time.Time, id profile.RowID, r profile.Row) error {
	return e.encode(sample{
		Type: "sample", Time: timestamp(at), process: toProcess(r.Process), Row: id.Hash(),
		TID: r.Thread, Samples: r.Samples, GILSamples: r.GILSamples, Span: r.Span.String(),
		Stack: toFrames(r.Stack),
	})
}

// Call writes the state of one row of calls to the driver.
func (e *Encoder) Call(at time.Time, id profile.RowID, r profile.Row) error {
	return e.encode(call{
		Type: "call", Time: timestamp(at), process: toProcess(r.Process), Row: id.Hash(),
		Operation: r.Kind, Device: r.Device, Calls: r.Calls, Launches: r.Launches, CopiedBytes: r.CopiedBytes,
		HostNanoseconds: r.HostNanoseconds, WaitNanoseconds: r.WaitNanoseconds,
		Kernels: r.Kernels, DeviceTime: r.DeviceNanoseconds, Span: r.Span.String(),
		Stack: toFrames(r.Stack),
	})
}

// OOM writes one refused allocation.
func (e *Encoder) OOM(o profile.OOM) error {
	holders := make([]holder, len(o.Holders))
	for i, h := range o.Holders {
		holders[i] = holder{Bytes: h.Bytes, Stack: toFrames(h.Stack)}
	}
	return e.encode(oom{
		Type: "oom", Time: timestamp(o.Time), process: toProcess(o.Process),
		API: o.API, Error: o.Error, RefusedBy: o.RefusedBy, Device: o.Device,
		RequestedBytes: o.RequestedBytes, InuseBytes: o.InuseBytes, PoolBytes: o.PoolBytes, Span: o.Span.String(),
		Stack: toFrames(o.Stack), Holders: holders,
	})
}

func (e *Encoder) encode(v any) error {
	e.line.Reset()
	err := e.json.Encode(v)
	if err == nil { // names are the processes' to choose, and the file may be a terminal
		_, err = e.to.Write(screen.JSON(e.line.Bytes()))
	}
	if err != nil {
		return fmt.Errorf("write jsonl: %w", err)
	}
	return nil
}

func timestamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

func toProcess(p profile.Process) process {
	return process{
		// A number of 64 bits would lose its end in most JSON readers.
		Process: fmt.Sprintf("%016x", p.ID),
		PID:     p.PID, Comm: p.Comm,
		Namespace: p.Namespace, Pod: p.Pod, Container: p.Container, Labels: toLabels(p.Labels),
	}
}

// toLabels has those with a value.
func toLabels(text string) map[string]string {
	all := map[string]string{}
	for _, l := range labels.WithValue(text) {
		all[l[0]] = l[1]
	}
	return all
}

func toFrames(s stack.Stack) []frame {
	frames := make([]frame, len(s))
	for i, f := range s {
		frames[i] = frame{Function: f.Function, File: f.File, Line: f.Line, Kind: f.Kind.String(), Library: f.Library}
	}
	return frames
}
