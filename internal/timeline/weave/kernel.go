// SPDX-License-Identifier: Apache-2.0

package weave

import (
	"fmt"
	"strconv"

	"github.com/gpu-gadgets/gpu-gadgets/internal/timeline/track"
)

// Kernel is one that the GPU ran, as reported by CUPTI in its process.
type Kernel struct {
	Thread             // that launched it; if unknown, that reported it
	Start, End  uint64 // boot ns
	Launch      uint64 // when its launch was called, boot ns; 0: not seen
	Name        string
	Function    string // that launched it; empty: not seen
	Device      Device
	Stream      uint32 // as CUPTI numbers them
	Graph       uint32 // 0: not part of one
	Node        uint64
	Correlation uint32 // of its launch
	Stack       *Stack // of its launch
}

const kernelCategory = "kernel"

// maxArrows bounds the launches that are known to have an arrow.
const maxArrows = 65536

type launchKey struct {
	process     uint64
	correlation uint32
}

// Kernel draws a kernel on a track of its stream. Kernels may be passed in any order: a
// late one may need a second track. An arrow leads to it from its launch; from that of a
// graph to the first of its kernels.
func (w *Weaver) Kernel(k *Kernel) {
	w.clock++
	w.process(&k.Thread)
	args := append(w.args[:0],
		track.Arg{Key: "device", Number: int64(k.Device.Ordinal())},
		track.Arg{Key: "stream", Number: int64(k.Stream)},
		track.Arg{Key: "correlation", Number: int64(k.Correlation)})
	if k.Function != "" {
		args = append(args, track.Arg{Key: "function", Text: k.Function})
	}
	if k.Graph != 0 {
		args = append(args, track.Arg{Key: "graph", Number: int64(k.Graph)}, track.Arg{Key: "node", Text: strconv.FormatUint(k.Node, 10)})
	}
	args = w.stackArgs(args, k.Stack)
	on := w.submit(&Call{
		Thread: k.Thread, Stream: uint64(k.Device)<<32 | uint64(k.Stream),
		Track: fmt.Sprintf("GPU %d, kernels of stream %d", k.Device.Ordinal(), k.Stream),
	}, track.Slice{Start: k.Start, End: max(k.Start, k.End), Name: k.Name, Category: kernelCategory, Args: args})
	if k.Launch == 0 {
		return
	}
	key := launchKey{k.Process, k.Correlation}
	if w.arrowed[key] && k.Graph != 0 {
		return
	}
	if w.arrowed == nil || len(w.arrowed) >= maxArrows {
		w.arrowed = map[launchKey]bool{}
	}
	w.arrowed[key] = true
	w.arrows++
	w.out.Arrow(track.Arrow{
		ID: w.arrows, Name: "launches", From: w.thread(&k.Thread).track, FromNS: k.Launch, To: on, ToNS: k.Start,
	})
}
