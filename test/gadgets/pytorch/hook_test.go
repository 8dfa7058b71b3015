// SPDX-License-Identifier: Apache-2.0

package pytorch

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
)

// TestPythonOfAutogradsThreadIsBetweenItsNativeFrames: a node in Python, with --native-stacks all. From the
// launch outwards: PyTorch's functions that the node's Python called, that Python, the engine that runs the
// node on autograd's thread, and the Python stack that requested the pass.
func TestPythonOfAutogradsThreadIsBetweenItsNativeFrames(t *testing.T) {
	t.Parallel()
	p := begin(t, nil, "backward.py", "custom")
	a := trace[sized](t, p, "cuda_kernel", "calls", "--native-stacks", "all")
	var imported struct{ Imported string }
	var said struct{ Stacks map[uint64][][]string }
	p.request("", &imported)
	a.attachedTorch(p.PID(), "cuda_kernel")
	want := []string{
		"native", stack.Trampoline, "python work", "python Doubled.backward", "native", stack.Autograd, "python Cases.custom",
	}
	seen := map[string]bool{}
	for range mostRounds {
		for range 5 {
			p.request("", &said)
		}
		settled(a)
		for _, r := range a.rows {
			if !strings.Contains(r.Stack, "work (backward.py") || end(r.Stack) != "" || r.Kernel == "" {
				continue
			}
			// Until all rules are there, what is behind the node's Python is missing.
			parts := partsOf(r.Stack)
			if seen[strings.Join(parts, ", ")] = true; len(parts) > len(want) && slices.Equal(parts[:len(want)], want) {
				t.Log(strings.ReplaceAll(r.Stack, "; ", "\n"))
				return
			}
		}
	}
	require.Fail(t, "no whole stack of the node", "%v", seen)
}

// partsOf is a folded stack by runs of frames, from the leaf on; those of Python have the function of
// backward.py.
func partsOf(folded string) (parts []string) {
	frames := strings.Split(folded, "; ")
	slices.Reverse(frames)
	for _, frame := range frames {
		part := "native"
		switch f := stack.ParseLabel(frame); {
		case f.Kind == stack.KindTrampoline:
			part = frame
		case f.Kind == stack.KindPython && strings.Contains(frame, "(backward.py:"):
			_, local, ok := strings.Cut(f.Function, "<locals>.")
			if part = "python " + f.Function; ok {
				part = "python " + local
			}
		case f.Kind == stack.KindPython:
			continue
		}
		if len(parts) == 0 || parts[len(parts)-1] != part {
			parts = append(parts, part)
		}
	}
	return parts
}
