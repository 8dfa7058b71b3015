// SPDX-License-Identifier: Apache-2.0

package weave

import (
	"maps"
	"slices"
	"strings"

	"github.com/gpu-gadgets/gpu-gadgets/internal/timeline/track"
)

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// Host draws an activity of a thread on the host.
func (w *Weaver) Host(h *Host) {
	w.clock++
	p, t := w.process(&h.Thread), w.thread(&h.Thread)
	args := w.args[:0]
	switch h.Kind {
	case Sample:
		w.observe(t, h.Stack, h.Start, h.Start)
	case Ran:
		args = append(args, track.Arg{Key: "cpu", Number: int64(h.CPU)})
		w.out.Slice(w.lane(t, laneCPU), track.Slice{Start: h.Start, End: h.End, Name: "on CPU", Category: "cpu", Args: args})
	case Slept:
		name := h.Name
		if h.Reason != "" {
			name += ": " + h.Reason
		}
		w.out.Slice(w.lane(t, laneCPU), track.Slice{Start: h.Start, End: h.End, Name: name, Category: "off-cpu", Args: args})
	case Syscall:
		if h.File != "" {
			args = append(args, track.Arg{Key: "file", Text: h.File})
		}
		args = append(args, track.Arg{Key: "result", Number: h.Result})
		if h.Bytes != 0 {
			args = append(args, track.Arg{Key: "bytes", Number: int64(h.Bytes)})
		}
		w.out.Slice(w.lane(t, laneSyscalls), track.Slice{Start: h.Start, End: h.End, Name: h.Name, Category: "syscall", Args: args})
		if h.Bytes != 0 && reads(h.Name) {
			w.rate(p, "read GB/s", h.Start, h.End, h.Bytes)
		}
	case Memory:
		w.memory(p, h)
	}
}

// reads reports whether bytes of a call were read from a file or a socket.
func reads(call string) bool {
	return strings.Contains(call, "read") && call != "readlink" && call != "readlinkat" && call != "readahead"
}

// memory draws the resident memory of a process, and the rate at which page faults read
// files.
func (w *Weaver) memory(p *process, h *Host) {
	before, known := p.levels[residentFiles]
	w.Level(&h.Thread, residentFiles, h.End, h.FileBytes)
	w.Level(&h.Thread, residentOther, h.End, h.AnonBytes)
	if known && h.FileBytes > before {
		w.rate(p, "mapped GB/s", h.Start, h.End, h.FileBytes-before)
	}
}

const (
	residentFiles = "resident, of files"
	residentOther = "resident, other"
)

// lane returns an additional track of a thread.
func (w *Weaver) lane(t *thread, lane int) track.Track {
	on := track.Track{PID: t.track.PID, ID: track.Lane(t.track.ID, uint32(lane))}
	if !t.lanes[lane] {
		t.lanes[lane] = true
		w.out.Name(on, [...]string{"", "CPU", "system calls"}[lane], t.order+lane)
	}
	return on
}
