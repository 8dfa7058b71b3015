// SPDX-License-Identifier: Apache-2.0

package kernels

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
)

// TestAgree: Inspektor Gadget's own ig and bin/ig-gpu trace one workload at the same
// time, with the same image, and show the same, to the byte.
func TestAgree(t *testing.T) {
	library := stockLibrary(t)
	ig := stockWith(t, image("cuda_alloc"))
	w := startWorkload(t, "python3", library, "--calls", "1000")
	stock := start(t, ig, unsigned(image("cuda_alloc"))...)
	stock.wait("all is attached", func() bool { return stock.tables > 1 })
	own := startProduct(t, w)
	w.resume("holding")
	want := expected(t, w.dir)
	requireTruth(t, stock, want, withoutStacks)
	requireTruth(t, own, want, withoutStacks)

	theirs, ours := texts(t, stock), texts(t, own)
	same, incomplete := 0, 0
	for text := range theirs {
		switch {
		case ours[text] == theirs[text]:
			same += theirs[text]
		case strings.Contains(text, stack.Truncated) || strings.Contains(text, stack.Unreadable):
			incomplete += theirs[text] // it is marked; docs/reference/stock-ig.md
		default:
			t.Errorf("ig: %d rows, ig-gpu: %d rows: %s", theirs[text], ours[text], text)
		}
	}
	if incomplete == 0 {
		require.Equal(t, slices.Sorted(maps.Keys(ours)), slices.Sorted(maps.Keys(theirs)))
	}
	require.Greater(t, same, 9*incomplete, "rows that are the same, and rows that lack frames")
	w.resume("done")
	stock.interrupt() // ig-gpu has ended with the process of --pid
	t.Logf("%d rows are the same, %d of ig lack frames and say so", same, incomplete)
	record(t, "rows", "%d, and %d with missing frames", same, incomplete)
}

// texts returns the rows of the latest table as text: all values, the process and its
// Python lines. Only ig-gpu shows the frames of native code.
func texts(t *testing.T, g *gadget) map[string]int {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	count := map[string]int{}
	for _, r := range g.rows {
		var frames []string
		for i, text := range strings.Split(r.Stack, "; ") {
			isCut := text == stack.Truncated && i == 0 // elsewhere native frames are missing
			if pythonFrame.MatchString(text) || text == stack.Unreadable || isCut {
				frames = append(frames, text)
			}
		}
		r.Stack, r.StackID = strings.Join(frames, "; "), 0
		text, err := json.Marshal(r)
		require.NoError(t, err)
		count[string(text)]++
	}
	return count
}
