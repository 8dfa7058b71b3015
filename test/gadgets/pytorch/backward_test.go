// SPDX-License-Identifier: Apache-2.0

package pytorch

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
)

// sized is a row of cuda_kernel or of cuda_alloc.
type sized struct {
	Kernel       string `json:"kernel"`
	Kind         string `json:"kind"`
	Stack        string `json:"stack"`
	Frame        string `json:"frame"`
	Calls        uint64 `json:"calls"`
	Blocks       uint64 `json:"blocks"`
	AllocBytes   uint64 `json:"alloc_bytes"`
	AllocObjects uint64 `json:"alloc_objects"`
}

// size is that of backward.py; 0: the row is none of an elementwise kernel or of a tensor, or
// has several.
func (r sized) size() uint64 {
	const block = 512 * 4
	switch {
	case r.Kernel != "" && r.Calls > 0 && r.Blocks%r.Calls == 0:
		return r.Blocks / r.Calls
	case r.Kind == "tensor" && r.AllocObjects > 0 && r.AllocBytes%(block*r.AllocObjects) == 0:
		return r.AllocBytes / (block * r.AllocObjects)
	}
	return 0
}

// TestBackwardWorkHasTheLineThatAskedForIt: the sizes of kernels and of tensors identify their
// pass, and the program prints the stack that began it.
func TestBackwardWorkHasTheLineThatAskedForIt(t *testing.T) {
	for _, situation := range []string{"plain", "lines", "grad", "double", "custom", "reentrant", "threads", "busy", "waiting"} {
		for _, gadget := range []string{"cuda_alloc", "cuda_kernel"} {
			for _, attach := range []string{"before the import", "in the middle"} {
				t.Run(situation+"/"+gadget+"/"+attach, func(t *testing.T) {
					t.Parallel()
					backward(t, situation, gadget, attach != "before the import")
				})
			}
		}
	}
}

func backward(t *testing.T, situation, gadget string, isLate bool) {
	p := begin(t, nil, "backward.py", situation)
	var imported struct{ Imported string }
	var said struct{ Stacks map[uint64][][]string }
	if isLate {
		p.request("", &imported)
		p.request("", &said)
		p.request("", &said)
	}
	table, args := "calls", []string(nil)
	if gadget == "cuda_alloc" {
		table, args = "allocs", []string{"--torch", "on"}
	}
	a := trace[sized](t, p, gadget, table, args...)
	if isLate {
		a.attached(p.PID(), "libcuda.so")
	} else {
		p.request("", &imported) // libcuda is loaded later, and waited for by the kernel's events
	}
	a.attachedTorch(p.PID(), gadget)
	for n := range 3 {
		p.request("", &said)
		require.NotEmpty(t, said.Stacks)
		a.until(fmt.Sprintf("stacks of round %d", n), func() (bool, any) {
			d := differentStacks(said.Stacks, a.rows)
			return len(d) == 0, strings.Join(d, "\n")
		})
	}
	a.end(map[string]uint64{})
}

// framesOfPrograms are those that backward.py reports, in the form of a row.
var framesOfPrograms = regexp.MustCompile(`^(\S+) \((backward|torch/utils/checkpoint)\.py:(\d+)\)$`)

// asked is a row's stack as backward.py reports it: innermost first.
func asked(folded string) (frames []string) {
	frames = []string{}
	labels := strings.Split(folded, "; ")
	slices.Reverse(labels)
	for _, label := range labels {
		if label == stack.Autograd {
			frames = append(frames, label)
		} else if m := framesOfPrograms.FindStringSubmatch(label); m != nil && m[2] == "backward" {
			frames = append(frames, m[1]+":"+m[3])
		} else if m != nil {
			frames = append(frames, m[1])
		}
	}
	return frames
}

// differentStacks compares what autograd's threads have done: what has a line of its own only
// was done by the threads of the program, and all else must be known.
func differentStacks(want map[uint64][][]string, rows []sized) (text []string) {
	for size, stacks := range want {
		have := map[string]bool{}
		for _, r := range rows {
			if r.size() != size {
				continue
			}
			if frames := asked(r.Stack); len(frames) == 0 || slices.Contains(frames, stack.Autograd) {
				have[strings.Join(frames, " ")] = true
			}
		}
		for _, s := range stacks {
			if one := strings.Join(s, " "); !have[one] {
				text = append(text, fmt.Sprintf("%d: lacks %s", size, one))
			} else {
				delete(have, one)
			}
		}
		for one := range have {
			text = append(text, fmt.Sprintf("%d: has %q", size, one))
		}
	}
	slices.Sort(text)
	return text
}
