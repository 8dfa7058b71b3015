// SPDX-License-Identifier: Apache-2.0

package pytorch

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/examples/simcuda/journal"
	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
)

// moments is how often all threads of tensors.py pause, and rows are compared.
const moments = 50

// alloc is a row of cuda_alloc.
type alloc struct {
	Proc         process `json:"proc"`
	Kind         string  `json:"kind"`
	Device       int32   `json:"device"`
	Frame        string  `json:"frame"`
	Stack        string  `json:"stack"`
	AllocBytes   uint64  `json:"alloc_bytes"`
	AllocObjects uint64  `json:"alloc_objects"`
	InuseBytes   uint64  `json:"inuse_bytes"`
	InuseObjects uint64  `json:"inuse_objects"`

	RequestedBytes uint64 `json:"requested_bytes"`
	RoundingBytes  uint64 `json:"rounding_bytes"`
}

// moment is PyTorch's own account while all threads pause.
type moment struct {
	PID                 int
	Allocated, Reserved []uint64
	Lines               []struct {
		Device                   int32
		Line                     string
		Bytes, Blocks, Requested uint64
	}
}

// place is whom memory is attributed to. The line is empty where there is none.
type place struct {
	kind   string
	device int32
	line   string
}

// held is in use, and what was allocated since attach; of tensors only the former.
type held struct{ bytes, objects, allocBytes, allocObjects uint64 }

func TestTensorsAreExactAtEachMoment(t *testing.T) {
	for _, c := range []struct{ name, conf, settings string }{
		{"native", "", ""},
		{"expandable segments", "expandable_segments:True", ""},
		{"cudaMallocAsync", "backend:cudaMallocAsync", "tagged"},
		{"max_split_size_mb", "max_split_size_mb:21", ""},
		{"private pools of graphs", "", "graphs"},
		{"private pools of graphs, expandable", "expandable_segments:True", "graphs"},
	} {
		for seed, attach := range []string{"before the import", "in the middle"} {
			t.Run(c.name+"/"+attach, func(t *testing.T) {
				t.Parallel()
				p := begin(t, []string{"PYTORCH_CUDA_ALLOC_CONF=" + c.conf}, "tensors.py",
					append([]string{fmt.Sprint(seed + 1)}, strings.Fields(c.settings)...)...)
				w := &workload{program: p, pool: c.settings != "tagged", late: attach != "before the import"}
				w.run()
			})
		}
	}
}

// workload is tensors.py and its tracer.
type workload struct {
	*program
	*agent[alloc]
	pool bool // PyTorch has one of its own
	late bool // the tracer comes in the middle

	begin       int    // journal's records of before attach
	freedBefore uint64 // allocations from before attach that were freed since
}

func (w *workload) run() {
	t := w.program.t
	var imported struct{ Imported string }
	var m moment
	if w.late {
		w.request("", &imported)
		w.request("", &m)
		for range 4 {
			w.request("go", &m)
		}
		w.begin = len(w.journal(w.PID(), "cu").Records)
	}
	w.agent = trace[alloc](t, w.program, "cuda_alloc", "allocs", "--torch", "on")
	w.agent.attached(w.PID(), "libcuda.so")
	if w.late {
		w.agent.attachedTorch(w.PID(), "cuda_alloc")
		w.request("record", &m)
	} else {
		w.request("record", &imported)
		w.agent.attachedTorch(w.PID(), "cuda_alloc")
		w.request("", &m)
	}
	var lines, bytes uint64
	for n := range moments {
		if n > 0 {
			w.request("go", &m)
		}
		want := w.compare(fmt.Sprintf("moment %d", n), m)
		for p, h := range want {
			if p.line != "" && p.kind == w.followed() {
				lines, bytes = lines+1, bytes+h.bytes
			}
		}
	}
	require.Greater(t, lines, uint64(moments*5), "lines that hold something")
	t.Logf("%d lines with %d MiB compared", lines, bytes>>20)
	lost := map[string]uint64{}
	if w.freedBefore > 0 {
		lost["freed_before_attach"] = w.freedBefore
	}
	w.end(lost)
	require.NotContains(t, w.log.String(), "of no tensor")
}

// compare waits until the rows of a process are what PyTorch and the journal say.
func (w *workload) compare(what string, m moment) map[place]held {
	want := w.driver(m.PID)
	maps.Copy(want, w.tensors(m))
	w.until("rows of "+what, func() (bool, any) {
		d := differences(want, w.have(m.PID))
		return len(d) == 0, strings.Join(d, "\n")
	})
	if !w.late {
		w.segments(m, want)
	}
	return want
}

// followed is the kind of the rows that have the tensors.
func (w *workload) followed() string {
	if w.pool {
		return "tensor"
	}
	return "pool"
}

// tensors is PyTorch's own account: bytes and blocks of each line; all that has no line is one
// sum of bytes, which makes the sum of a device what PyTorch has allocated there.
func (w *workload) tensors(m moment) map[place]held {
	want := map[place]held{}
	if !w.pool {
		return want
	}
	rest := slices.Clone(m.Allocated)
	for _, l := range m.Lines {
		if l.Line != "" {
			want[place{"tensor", l.Device, l.Line}] = held{bytes: l.Bytes, objects: l.Blocks}
			rest[l.Device] -= l.Bytes
		}
	}
	for device, bytes := range rest {
		if bytes > 0 {
			want[place{"tensor", int32(device), ""}] = held{bytes: bytes}
		}
	}
	return want
}

// driver sums the driver's journal since attach, by the line that
// called.
func (w *workload) driver(pid int) map[place]held {
	t := w.program.t
	type block struct {
		place
		bytes uint64
	}
	sums, live := map[place]held{}, map[uint64]block{}
	w.freedBefore = 0
	lines := w.lines(pid)
	for _, r := range w.journal(pid, "cu").Records[w.begin:] {
		switch r.Type {
		case journal.Alloc:
			require.Contains(t, lines, r.Tag)
			b := block{place{r.Kind.String(), r.Device, unqualified(lines[r.Tag])}, r.Size}
			live[r.Seq] = b
			h := sums[b.place]
			sums[b.place] = held{h.bytes + r.Size, h.objects + 1, h.allocBytes + r.Size, h.allocObjects + 1}
		case journal.Free, journal.Implicit:
			if b, ok := live[r.AllocSeq]; !ok {
				w.freedBefore++
				if r.Kind == journal.VMM { // its mapping and its handle
					w.freedBefore++
				}
			} else {
				h := sums[b.place]
				sums[b.place] = held{h.bytes - b.bytes, h.objects - 1, h.allocBytes, h.allocObjects}
			}
		}
	}
	return sums
}

// segments: the sum of the driver's rows is what PyTorch has reserved.
func (w *workload) segments(m moment, rows map[place]held) {
	want := m.Reserved
	if !w.pool { // that has the driver's own rounding
		want = m.Allocated
	}
	have := make([]uint64, len(want))
	for p, h := range rows {
		if p.kind == "device" || p.kind == "vmm" || p.kind == "pool" {
			have[p.device] += h.bytes
		}
	}
	require.Equal(w.program.t, want, have)
}

// have are the rows of the tracer in the form of the truth.
func (w *workload) have(pid int) map[place]held {
	rows := map[place]held{}
	for _, r := range w.rows {
		if int(r.Proc.PID) != pid {
			continue
		}
		p := place{r.Kind, r.Device, unqualified(ownLine(r.Frame, r.Stack))}
		h := rows[p]
		h = held{h.bytes + r.InuseBytes, h.objects + r.InuseObjects, h.allocBytes + r.AllocBytes, h.allocObjects + r.AllocObjects}
		if r.Kind == "tensor" {
			h.allocBytes, h.allocObjects = 0, 0
			if p.line == "" { // [before attach] has no number of blocks
				h.objects = 0
			}
		}
		rows[p] = h
	}
	maps.DeleteFunc(rows, func(_ place, h held) bool { return h == held{} })
	return rows
}

// pythonFrame is a frame of a row that is a line of Python.
var pythonFrame = regexp.MustCompile(`\(.+:\d+\)$`)

// lineOf is a row's line of Python without directories; empty: its frame is none.
func lineOf(frame string) string {
	name, where, found := strings.Cut(frame, " (")
	if !found || !pythonFrame.MatchString(frame) {
		return ""
	}
	return name + " (" + where[strings.LastIndex(where, "/")+1:]
}

// ownLine is the line of Python that a row's thread was on itself, as lines.py and PyTorch's
// recorder have it; empty: it is one of autograd's, and the line is that of the thread that
// began the work, which must be there.
func ownLine(frame, folded string) string {
	i := strings.LastIndex(folded, stack.Autograd)
	own := folded[max(i, 0):] // the root comes first
	switch {
	case stack.IsUnknown(folded), i >= 0 && strings.Contains(folded[:i], "_engine_run_backward (torch/autograd/graph.py:") &&
		!slices.ContainsFunc(strings.Split(own, "; "), pythonFrame.MatchString):
		return ""
	case lineOf(frame) == "":
		return "no line: " + folded
	}
	return lineOf(frame)
}

// unqualified is a line as PyTorch's recorder has it, which knows no qualified names, and
// without directories.
func unqualified(frame string) string {
	name, where, found := strings.Cut(frame, " (")
	if !found {
		return frame
	}
	return name[strings.LastIndex(name, ".")+1:] + " (" + where[strings.LastIndex(where, "/")+1:]
}

// differences between two tables, a line for each.
func differences(want, have map[place]held) (text []string) {
	for p, w := range want {
		if h := have[p]; h != w {
			text = append(text, fmt.Sprintf("%+v: want %+v, have %+v", p, w, h))
		}
	}
	for p, h := range have {
		if _, ok := want[p]; !ok {
			text = append(text, fmt.Sprintf("%+v: want nothing, have %+v", p, h))
		}
	}
	slices.Sort(text)
	return text
}
