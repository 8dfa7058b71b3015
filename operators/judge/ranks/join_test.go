// SPDX-License-Identifier: Apache-2.0

package ranks

import (
	"os/exec"
	"testing"
	"time"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	gadgetcontext "github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-context"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/collective"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

// remote is a node whose boot clock began at some time.
type remote struct {
	*gadget
	at     time.Time // that its rows arrive
	booted time.Time
	err    error
}

func newRemote(t *testing.T, j *Joiner, name string, booted time.Time) *remote {
	t.Helper()
	r := &remote{gadget: &gadget{t: t}, booted: booted}
	require.NoError(t, r.declare(gadgetcontext.New(t.Context(), "nccl_trace")))
	take, err := j.Node(name).Table(r.communicators)
	require.NoError(t, err)
	require.NoError(t, r.communicators.SubscribeArray(func(_ datasource.DataSource, all datasource.DataArray) error {
		r.err = take(all, r.at)
		return nil
	}, 0))
	return r
}

func (r *remote) boot(at time.Time) collective.Time { return collective.Time(at.Sub(r.booted)) }

func (r *remote) read(at time.Time, latency time.Duration, ranks ...*simulated) {
	r.t.Helper()
	r.at = at.Add(latency)
	require.NoError(r.t, r.emit(ranks, r.boot(at)))
	require.NoError(r.t, r.err)
}

// TestNodesAreComparedInWallTime: machines that have been up for other times, and whose
// rows are on their way for a while.
func TestNodesAreComparedInWallTime(t *testing.T) {
	var reported []profile.Hang
	j, err := NewJoiner(JoinConfig{Hang: 2 * time.Second, Report: func(h profile.Hang) { reported = append(reported, h) }})
	require.NoError(t, err)
	now := time.Unix(1800000000, 0)
	a, b := newRemote(t, j, "a", now.Add(-1000*time.Hour)), newRemote(t, j, "b", now.Add(-time.Minute))
	rank := func(on *remote, n int, issued uint64, entered time.Time, isDone bool) *simulated {
		return &simulated{process: &exec.Cmd{}, rank: n, issued: issued, entered: on.boot(entered), done: isDone}
	}
	began := now.Add(-time.Second)
	for i := range 6 {
		at := now.Add(time.Duration(i) * time.Second)
		a.read(at, 3*time.Millisecond, rank(a, 0, 487, began, false), rank(a, 2, 487, began, false))
		b.read(at, time.Duration(6-i)*10*time.Millisecond, rank(b, 1, 486, now.Add(-2*time.Second), true))
		j.Judge(at.Add(100 * time.Millisecond))
	}
	require.Len(t, reported, 1)
	h := reported[0]
	require.Equal(t, "missing", h.Reason)
	require.Equal(t, []int64{1}, h.Ranks)
	require.Equal(t, []int64{0, 2}, h.Waiting)
	require.Equal(t, "b", h.Process.Node)
	require.EqualValues(t, 487, h.Seq)
	require.InDelta(t, 2.1, h.Waited.Seconds(), 0.01, "the wait began when the others came")

	// It comes, 5 s late by b's clock.
	at := now.Add(6 * time.Second)
	b.read(at, 10*time.Millisecond, rank(b, 1, 487, now.Add(4*time.Second), true))
	j.Judge(at.Add(100 * time.Millisecond))
	require.Len(t, reported, 2)
	require.Equal(t, "cleared", reported[1].Event)
	require.InDelta(t, 5, reported[1].Waited.Seconds(), 0.02)
	require.Zero(t, j.Refused())
}

// TestANodeThatFallsSilentIsNotBlamed: nothing is known of its ranks any more.
func TestANodeThatFallsSilentIsNotBlamed(t *testing.T) {
	var reported []profile.Hang
	j, err := NewJoiner(JoinConfig{Hang: 2 * time.Second, Report: func(h profile.Hang) { reported = append(reported, h) }})
	require.NoError(t, err)
	now := time.Unix(1800000000, 0)
	a, b := newRemote(t, j, "a", now.Add(-time.Hour)), newRemote(t, j, "b", now.Add(-time.Minute))
	waiting := &simulated{process: &exec.Cmd{}, rank: 0, issued: 487, entered: a.boot(now), done: false}
	b.read(now, 0, &simulated{process: &exec.Cmd{}, rank: 1, issued: 486, entered: b.boot(now.Add(-time.Second)), done: true})
	var last profile.Hang
	for i := range 30 {
		at := now.Add(time.Duration(i) * time.Second)
		a.read(at, 0, waiting)
		j.Judge(at)
		if len(reported) > 0 {
			last = reported[len(reported)-1]
		}
	}
	require.Equal(t, []string{"elsewhere", "found"}, []string{last.Reason, last.Event}, "after a while it is not known to be missing")
	require.Equal(t, []string{"b"}, last.Nodes)
	require.Contains(t, last.Text, "ranks 1, 2 of it are not heard of: node b has been silent for 6.0 s")
}

// A node whose first rows are still on their way is waited for, and one that never answers
// not for long.
func TestNodesAreJudgedWhenAllWereRead(t *testing.T) {
	for name, isRead := range map[string]bool{"the other node is late": true, "the other node never answers": false} {
		t.Run(name, func(t *testing.T) {
			var found []string
			j, err := NewJoiner(JoinConfig{Hang: 2 * time.Second, Report: func(h profile.Hang) { found = append(found, h.Reason) }})
			require.NoError(t, err)
			now := time.Unix(1800000000, 0)
			booted := now.Add(-time.Hour)
			a, b := newRemote(t, j, "a", booted), newRemote(t, j, "b", booted)
			waits := &simulated{process: &exec.Cmd{}, rank: 0, issued: 5, entered: a.boot(now.Add(-time.Minute))}
			late := &simulated{process: &exec.Cmd{}, rank: 1, issued: 4, entered: b.boot(now.Add(-2 * time.Minute)), done: true}
			for i := range 15 {
				at := now.Add(time.Duration(i) * time.Second)
				a.read(at, 0, waits)
				if isRead && i >= 3 {
					b.read(at, 0, late)
				}
				j.Judge(at)
			}
			if isRead {
				require.Equal(t, []string{"missing"}, found)
			} else {
				require.Equal(t, []string{"elsewhere"}, found)
			}
		})
	}
}

func TestClockFollowsTheQuickestRowOfTheLastMinute(t *testing.T) {
	var c clock
	second := collective.Time(time.Second)
	c.add(10*second, 1010*second+300)
	c.add(11*second, 1011*second+20)
	c.add(12*second, 1012*second+90)
	require.Equal(t, 1000*second+20, c.toWall())
	// The wall clock was set forward: after two windows that is what counts.
	for i := collective.Time(13); i < 150; i++ {
		c.add(i*second, (1005+i)*second)
	}
	require.Equal(t, 1005*second, c.toWall())
}

// TestANodeCannotMakeAJoinerKeepAnyNumber of ranks.
func TestANodeCannotMakeAJoinerKeepAnyNumber(t *testing.T) {
	j, err := NewJoiner(JoinConfig{})
	require.NoError(t, err)
	n := j.Node("a")
	for i := range maxNodeRanks {
		require.NoError(t, n.put(row{handle: uint64(i)}, 1))
	}
	require.ErrorIs(t, n.put(row{handle: 1 << 40}, 1), errTooMany)
	require.NoError(t, n.put(row{handle: 7}, 2), "those that are known go on")

	// Communicators that are made and destroyed all the time are no flood.
	newest := []row{{handle: 8}, {handle: 1 << 40}}
	n.makeRoom(newest)
	require.Len(t, n.rows, 1)
	for _, r := range newest {
		require.NoError(t, n.put(r, 3))
	}
	n.makeRoom(newest[:1])
	require.Len(t, n.rows, 2, "there is room")
}

// TestNobodyIsJudgedByOldRows: with most nodes silent it is the exporter that is cut off, or too
// slow, and no verdict on anyone would be right.
func TestNobodyIsJudgedByOldRows(t *testing.T) {
	for silent, want := range map[int][]string{1: {"missing"}, 3: nil} {
		var found []string
		j, err := NewJoiner(JoinConfig{Hang: 10 * time.Second, Report: func(h profile.Hang) { found = append(found, h.Reason) }})
		require.NoError(t, err)
		now := time.Unix(1800000000, 0)
		var nodes []*remote
		for n := range 5 {
			nodes = append(nodes, newRemote(t, j, string(rune('a'+n)), now.Add(-time.Hour)))
		}
		for i := range 14 {
			at := now.Add(time.Duration(i) * time.Second)
			for n, r := range nodes {
				if n >= len(nodes)-silent && i > 2 {
					continue // of no job, and its rows no longer come
				}
				switch n {
				case 0:
					r.read(at, 0, &simulated{process: &exec.Cmd{}, rank: 0, issued: 5, entered: r.boot(now)})
				case 1:
					r.read(at, 0, &simulated{process: &exec.Cmd{}, rank: 1, issued: 4, entered: r.boot(now.Add(-time.Second)), done: true})
				default:
					r.read(at, 0, &simulated{process: &exec.Cmd{}, rank: 2, issued: 5, entered: r.boot(now)})
				}
			}
			j.Judge(at)
		}
		require.Equal(t, want, found, "%d of 5 nodes are silent", silent)
		late, all := j.Late(now.Add(13 * time.Second))
		require.Equal(t, []int{silent, 5}, []int{late, all})
	}
}

// TestARankIsNotBlamedByOldRows: rows of one node are older than those of the others by less than
// the wait that is reported, as on a busy machine.
func TestARankIsNotBlamedByOldRows(t *testing.T) {
	var found []string
	j, err := NewJoiner(JoinConfig{Hang: 10 * time.Second, Report: func(h profile.Hang) { found = append(found, h.Reason) }})
	require.NoError(t, err)
	now := time.Unix(1800000000, 0)
	a, b := newRemote(t, j, "a", now.Add(-time.Hour)), newRemote(t, j, "b", now.Add(-time.Hour))
	for i := range 14 {
		at := now.Add(time.Duration(i) * time.Second)
		a.read(at, 0, &simulated{process: &exec.Cmd{}, rank: 0, issued: 5, entered: a.boot(now)})
		if i == 0 {
			b.read(at, 0, &simulated{process: &exec.Cmd{}, rank: 1, issued: 4, entered: b.boot(now.Add(-time.Second)), done: true})
		}
		j.Judge(at)
	}
	require.NotContains(t, found, "missing")
}

// TestImpossibleTimesAreOfNoGadget: a daemon that makes them up is recognized, and nothing of its
// table counts.
func TestImpossibleTimesAreOfNoGadget(t *testing.T) {
	now := time.Unix(1800000000, 0)
	for name, c := range map[string]struct {
		booted  time.Time
		entered time.Duration // after the reading
		isLie   bool
	}{
		"plain":                       {booted: now.Add(-time.Hour)},
		"begun while it was read":     {booted: now.Add(-time.Hour), entered: time.Second},
		"up for longer than Linux is": {booted: now.Add(-40 * 365 * 24 * time.Hour), isLie: true},
		"in the future":               {booted: now.Add(-time.Hour), entered: time.Minute, isLie: true},
	} {
		t.Run(name, func(t *testing.T) {
			j, err := NewJoiner(JoinConfig{})
			require.NoError(t, err)
			r := newRemote(t, j, "a", c.booted)
			r.at = now
			require.NoError(t, r.emit([]*simulated{{process: &exec.Cmd{}, rank: 0, issued: 5, entered: r.boot(now.Add(c.entered))}}, r.boot(now)))
			if c.isLie {
				require.ErrorIs(t, r.err, ErrClock)
				require.Empty(t, j.Node("a").rows)
			} else {
				require.NoError(t, r.err)
				require.Len(t, j.Node("a").rows, 1)
			}
		})
	}
}

// TestARankStaysInItsPod: its row may remain after its process has exited, when another container
// has got the number of the mount namespace by which rows are named.
func TestARankStaysInItsPod(t *testing.T) {
	j, err := NewJoiner(JoinConfig{Hang: time.Second, Report: func(profile.Hang) {}})
	require.NoError(t, err)
	n := j.Node("a")
	for _, c := range []struct{ named, want profile.Process }{
		{profile.Process{}, profile.Process{}},
		{profile.Process{Namespace: "team-a", Pod: "train-0"}, profile.Process{Namespace: "team-a", Pod: "train-0"}},
		{profile.Process{}, profile.Process{Namespace: "team-a", Pod: "train-0"}},
		{profile.Process{Namespace: "team-b", Pod: "search-0"}, profile.Process{Namespace: "team-a", Pod: "train-0"}},
	} {
		require.NoError(t, n.put(row{container: c.named}, 1))
		require.Equal(t, c.want, n.rows[rankKey{}].container)
	}
}
