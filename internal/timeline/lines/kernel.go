// SPDX-License-Identifier: Apache-2.0

package lines

import (
	"strconv"

	"github.com/gpu-gadgets/gpu-gadgets/internal/timeline/weave"
)

// Kernel writes a kernel that the GPU ran.
func (w *Writer) Kernel(k *weave.Kernel) {
	line := struct {
		Type string `json:"type"`
		span
		who
		Launch      uint64 `json:"launch_boot_ns,omitempty"`
		Function    string `json:"function,omitempty"`
		Kernel      string `json:"kernel"`
		Device      int32  `json:"device"`
		Stream      uint32 `json:"gpu_stream"`
		Graph       uint32 `json:"graph,omitempty"`
		Node        string `json:"node,omitempty"`
		Correlation uint32 `json:"correlation"`
		Stack       string `json:"stack,omitempty"`
	}{
		Type: "kernel", span: span{w.wall(k.Start), k.Start, k.End}, who: toWho(&k.Thread), Launch: k.Launch,
		Function: k.Function, Kernel: k.Name, Device: k.Device.Ordinal(), Stream: k.Stream, Graph: k.Graph,
		Correlation: k.Correlation, Stack: w.stack(k.Stack),
	}
	if k.Graph != 0 {
		line.Node = strconv.FormatUint(k.Node, 10)
	}
	w.put(line)
}
