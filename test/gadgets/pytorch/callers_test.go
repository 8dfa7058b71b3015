// SPDX-License-Identifier: Apache-2.0

package pytorch

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
)

// called is how many native frames the default has below Python: the function and its caller.
const called = 2

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

// callers are the native parts of stacks as they are by default.
type callers map[string]bool

// see takes in the stacks of one form, and compares them with those of the other.
func (c callers) see(t *testing.T, form string, stacks, before map[string]uint64) {
	if form == "auto" {
		c.take(t, stacks, before)
	} else {
		c.compare(t, stacks)
	}
}

// take takes in those that were called since before.
func (c callers) take(t *testing.T, stacks, before map[string]uint64) {
	for folded, calls := range stacks {
		if calls == before[folded] {
			continue
		}
		part := native(folded)
		require.Len(t, part, called)
		c[strings.Join(part, "; ")] = true
	}
	require.NotEmpty(t, c)
}

// compare requires that each is how a whole stack ends.
func (c callers) compare(t *testing.T, whole map[string]uint64) {
	ends := map[string]bool{}
	for folded := range whole {
		part := native(folded)
		for from := max(len(part)-called, 0); from < len(part); from++ {
			ends[strings.Join(part[from:], "; ")] = true
		}
	}
	for part := range c {
		require.True(t, ends[part], "no whole stack ends so: %s", part)
	}
}
