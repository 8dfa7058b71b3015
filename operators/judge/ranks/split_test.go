// SPDX-License-Identifier: Apache-2.0

package ranks

import (
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

// TestRanksOfASplitAreDerived where neither the gadget nor the library's memory has them, over two nodes; and not if a rank of
// the parent is not observed, since it may take part.
func TestRanksOfASplitAreDerived(t *testing.T) {
	for _, isWhole := range []bool{true, false} {
		var reported []profile.Hang
		j, err := NewJoiner(JoinConfig{Hang: 2 * time.Second, Report: func(h profile.Hang) { reported = append(reported, h) }})
		require.NoError(t, err)
		now := time.Unix(1800000000, 0)
		a, b := newRemote(t, j, "a", now.Add(-1000*time.Hour)), newRemote(t, j, "b", now.Add(-10*time.Minute))
		for i := range 6 {
			at := now.Add(time.Duration(i) * time.Second)
			rank := func(on *remote, n int, issued uint64, isDone, isSplit bool) *simulated {
				return &simulated{process: &exec.Cmd{}, rank: n, issued: issued, entered: on.boot(now.Add(-time.Second)), done: isDone, isSplit: isSplit}
			}
			here := []*simulated{rank(a, 0, 486, true, false), rank(a, 0, 5, false, true), rank(a, 1, 486, true, false)}
			if !isWhole {
				here = here[:2]
			}
			a.read(at, 0, here...)
			b.read(at, 0, rank(b, 2, 486, true, false), rank(b, 2, 4, true, true))
			j.Judge(at)
		}
		if !isWhole {
			require.Empty(t, reported)
			continue
		}
		require.Len(t, reported, 1)
		h := reported[0]
		require.Equal(t, "missing", h.Reason)
		require.Equal(t, "split", h.Name)
		require.EqualValues(t, 2, h.Size)
		require.Equal(t, []int64{0}, h.Ranks, "it has the lesser key")
		require.Equal(t, []int64{1}, h.Waiting)
		require.Equal(t, "b", h.Process.Node)
	}
}
