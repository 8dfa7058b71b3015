// SPDX-License-Identifier: Apache-2.0

package pytorch

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
)

// near is NATIVE_NEAR of bpf/stack/probed.h.
const near = 8

// native are the innermost frames of a folded stack that are all native.
func native(folded string) []string {
	frames := strings.Split(folded, "; ")
	for i, frame := range slices.Backward(frames) {
		if frame == stack.Autograd || frame == stack.Trampoline || pythonFrame.MatchString(frame) {
			return frames[i+1:]
		}
	}
	return frames
}

// nearest are the native parts of stacks as they are by default.
type nearest map[string]bool

// see takes in the stacks of one form, and compares them with those of the other.
func (n nearest) see(t *testing.T, form string, stacks, before map[string]uint64) {
	if form == "auto" {
		n.take(t, stacks, before)
	} else {
		n.compare(t, stacks)
	}
}

// take takes in those that were called since before.
func (n nearest) take(t *testing.T, stacks, before map[string]uint64) {
	for folded, calls := range stacks {
		if calls == before[folded] {
			continue
		}
		part := native(folded)
		require.LessOrEqual(t, len(part), near)
		n[strings.Join(part, "; ")] = true
	}
	require.Greater(t, len(n), 1)
}

// compare requires that each is how a whole stack ends.
func (n nearest) compare(t *testing.T, whole map[string]uint64) {
	ends := map[string]bool{}
	for folded := range whole {
		part := native(folded)
		for from := max(len(part)-near, 0); from < len(part); from++ {
			ends[strings.Join(part[from:], "; ")] = true
		}
	}
	for part := range n {
		require.True(t, ends[part], "no whole stack ends so: %s", part)
	}
}
