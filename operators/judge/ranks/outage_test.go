// SPDX-License-Identifier: Apache-2.0

package ranks

import (
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/collective"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

// TestAnOutageOfAllNodesClearsNoVerdict: nothing comes for a minute, and then from one node before the
// other one. The job hangs all the time, and is reported once.
func TestAnOutageOfAllNodesClearsNoVerdict(t *testing.T) {
	var reported []profile.Hang
	var store Store
	j, err := NewJoiner(JoinConfig{Hang: 2 * time.Second, Store: &store, Report: func(h profile.Hang) { reported = append(reported, h) }})
	require.NoError(t, err)
	j.run = store.begin()
	now := time.Unix(1800000000, 0)
	a, b := newRemote(t, j, "a", now.Add(-time.Hour)), newRemote(t, j, "b", now.Add(-time.Hour))
	waits := &simulated{process: &exec.Cmd{}, rank: 0, issued: 5, entered: a.boot(now)}
	missing := &simulated{process: &exec.Cmd{}, rank: 1, issued: 4, entered: b.boot(now.Add(-time.Second)), done: true}
	second := 0
	at := func() time.Time { return now.Add(time.Duration(second) * time.Second) }
	pass := func(seconds int, isA, isB bool) {
		t.Helper()
		for range seconds {
			second++
			if isA {
				a.read(at(), 0, waits)
			}
			if isB {
				b.read(at(), 0, missing)
			}
			j.Judge(at())
			if second > 3 && second <= 5+60+3+20 {
				require.Len(t, reported, 1, "second %d", second)
				require.Equal(t, "missing", reported[0].Reason)
			}
		}
	}
	// published are the ranks whose progress is exported: rules take what stands still for a hang.
	published := func() (of []string) {
		for r := range store.runs {
			for _, s := range r.ranks {
				of = append(of, s.Process.Node)
			}
		}
		slices.Sort(of)
		return of
	}
	late := func() [2]int {
		n, all := j.Late(at())
		return [2]int{n, all}
	}
	pass(5, true, true)
	require.Equal(t, [2]int{0, 2}, late())
	require.Equal(t, []string{"a", "b"}, published())
	pass(60, false, false)
	require.Empty(t, published())
	require.Equal(t, [2]int{2, 2}, late(), "late as long as nothing comes")
	pass(3, true, false)
	require.Equal(t, [2]int{1, 2}, late())
	pass(20, true, true)
	require.Equal(t, [2]int{0, 2}, late())
	require.Equal(t, []string{"a", "b"}, published())
	require.Len(t, j.analyzer.Verdicts(), 1)

	// One is gone for good, and is no longer late after a while.
	pass(200, true, false)
	require.Equal(t, [2]int{1, 2}, late())
	require.Equal(t, []string{"a"}, published())
	pass(101, true, false)
	require.Equal(t, [2]int{0, 1}, late())
	require.Len(t, j.nodes, 1)

	// It comes back all the same, and its tables go where they went.
	pass(5, true, true)
	require.Equal(t, [2]int{0, 2}, late())
	require.Equal(t, collective.Missing, j.analyzer.Verdicts()[0].Reason)
}

// TestNodesThatNeverAnswerAreForgotten, as in a cluster that has other nodes all the time.
func TestNodesThatNeverAnswerAreForgotten(t *testing.T) {
	j, err := NewJoiner(JoinConfig{})
	require.NoError(t, err)
	now := time.Unix(1800000000, 0)
	for i := range 1000 {
		j.Node("node-" + now.Add(time.Duration(i)).String())
		j.Judge(now.Add(time.Duration(i) * time.Second))
		require.LessOrEqual(t, len(j.nodes), 301)
	}
}
