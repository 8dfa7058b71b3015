// SPDX-License-Identifier: Apache-2.0

package ranks

import (
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

// TestRanksThatCreateACommunicatorAreReported while the last one does not come, and not once it has, although the rows of the calls
// are still in the joiner for a while.
func TestRanksThatCreateACommunicatorAreReported(t *testing.T) {
	var reported []profile.Hang
	j, err := NewJoiner(JoinConfig{Report: func(h profile.Hang) { reported = append(reported, h) }})
	require.NoError(t, err)
	now := time.Unix(1800000000, 0)
	a, b := newRemote(t, j, "a", now.Add(-1000*time.Hour)), newRemote(t, j, "b", now.Add(-10*time.Minute))
	const comes = 40
	for i := range 60 {
		at := now.Add(time.Duration(i) * time.Second)
		rank := func(on *remote, n int) *simulated {
			if i < comes {
				return &simulated{process: &exec.Cmd{}, rank: n, isNew: true, entered: on.boot(now)}
			}
			return &simulated{process: &exec.Cmd{}, rank: n, issued: 1, done: true, entered: on.boot(at)}
		}
		a.read(at, 0, rank(a, 0), rank(a, 1))
		if i < comes {
			b.read(at, 0)
		} else {
			b.read(at, 0, rank(b, 2))
		}
		j.Judge(at)
	}
	require.Len(t, reported, 2)
	require.Equal(t, "creating", reported[0].Reason)
	require.Equal(t, []int64{0, 1}, reported[0].Waiting)
	require.Equal(t, []int64{2}, reported[0].Unseen)
	require.Equal(t, "ranks 0, 1 of 3 have been creating communicator world (0xabcdef0123) for 30s; rank 2 has not called: it may still load, or hang", reported[0].Text)
	require.Equal(t, "cleared", reported[1].Event)
	require.InDelta(t, comes, reported[1].Waited.Seconds(), 7)
	require.Zero(t, j.Refused())
}
