// SPDX-License-Identifier: Apache-2.0

package simranks

import (
	"sort"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/collective"
)

// scenarios is how many seeds are tried, by every way of judging.
const scenarios = 100

// TestVerdictIsRight: in every scenario the one verdict at the end is the truth, and
// no other was given before.
func TestVerdictIsRight(t *testing.T) {
	cfg := collective.Config{}
	byName := map[string][]time.Duration{}
	for seed := range scenarios {
		s := New(seed)
		seen, err := Watch(s, cfg)
		require.NoError(t, err)
		at := time.Duration(-1)
		isRight := len(seen.Last) == 1
		for i := range seen.Events {
			v := &seen.Events[i]
			if s.Answer(v) != s.Want() || v.Cleared != 0 {
				isRight = false
			} else if at < 0 {
				at = time.Duration(v.At - s.Fault)
			}
		}
		if isRight {
			byName[s.Name] = append(byName[s.Name], at)
			continue
		}
		t.Errorf("seed %d: %s, %d ranks, %s: want %s", seed, s.Name, s.Size, s.Layout, s.Want())
		for i := range seen.Events {
			v := &seen.Events[i]
			t.Logf("  after %v, cleared %v: %s: %s", time.Duration(v.At-s.Fault), v.Cleared != 0, s.Answer(v), v.String(seen.End))
		}
	}
	for _, name := range faults {
		times := byName[name]
		sort.Slice(times, func(i, j int) bool { return times[i] < times[j] })
		if n := len(times); n > 0 {
			t.Logf("%-13s %2d right; verdict %v (median), %v (worst) after the fault; threshold %v",
				name, n, times[n/2].Round(100*time.Millisecond), times[n-1].Round(100*time.Millisecond), 30*time.Second)
		}
	}
}

// TestAMismatchIsFoundAfterManyCalls: dozens of collectives are issued after the one in which a rank differs.
func TestAMismatchIsFoundAfterManyCalls(t *testing.T) {
	far := 0
	for seed := range 30 {
		s := FarMismatch(seed)
		seen, err := Watch(s, collective.Config{})
		require.NoError(t, err)
		require.Len(t, seen.Last, 1, "seed %d, %d ranks, %s, %s: %s", seed, s.Size, s.Name, s.Layout, texts(seen))
		for i := range seen.Events {
			v := &seen.Events[i]
			text := v.String(seen.End)
			require.Equal(t, s.Want(), s.Answer(v), "seed %d, %d ranks, %s, %s: %s", seed, s.Size, s.Name, s.Layout, text)
			require.Zero(t, v.Cleared, "seed %d, %s: %s", seed, s.Name, text)
			if v.First == 0 {
				continue
			}
			far++
			t.Logf("seed %d, %s, after %v: %s", seed, s.Name, time.Duration(v.At-s.Fault).Round(time.Second), text)
			require.LessOrEqual(t, v.Seq-v.First, uint64(collective.Milestone))
			if v.Communicator.Size > 2 {
				require.Len(t, v.Missing, 1, text)
				require.Equal(t, s.Job.Process(s.Culprit), v.Missing[0].Process, text)
			}
			require.True(t, v.First <= s.wrong && s.wrong <= v.Seq, "%d: %s", s.wrong, text)
		}
	}
	require.Greater(t, far, 5, "only the newest calls show most of these mismatches")
}

func texts(s *Seen) (out []string) {
	for i := range s.Last {
		out = append(out, s.Last[i].String(s.End))
	}
	return out
}

// TestALostNodeIsNotBlamedOnOthers: of one node nothing is heard any more, where all are judged together.
func TestALostNodeIsNotBlamedOnOthers(t *testing.T) {
	for seed := range 20 {
		s := NodeLost(seed)
		seen, err := Watch(s, collective.Config{Silent: 15 * time.Second})
		require.NoError(t, err)
		require.NotEmpty(t, seen.Last, "seed %d, %d ranks, %s", seed, s.Size, s.Layout)
		for i := range seen.Events {
			v := &seen.Events[i]
			require.Equal(t, s.Want(), s.Answer(v), "seed %d, %d ranks, %s: node %d is lost: %s", seed, s.Size, s.Layout, s.LostNode, v.String(seen.End))
			require.Contains(t, v.String(seen.End), "not heard of")
		}
	}
}

// TestALostNodeIsOneVerdict, which names it, of several communicators with ranks there.
func TestALostNodeIsOneVerdict(t *testing.T) {
	for seed := range 12 {
		s := SplitNodeLost(seed, []int{2, 4, 8}[seed%3])
		seen, err := Watch(s, collective.Config{Silent: 15 * time.Second})
		require.NoError(t, err)
		require.Len(t, seen.Events, 1, "seed %d, %d ranks, %s", seed, s.Size, s.Layout)
		v := &seen.Events[0]
		require.Equal(t, collective.Elsewhere, v.Reason, v.String(seen.End))
		require.Len(t, v.Lost, 1, v.String(seen.End))
		require.Equal(t, s.Job.Process(s.LostNode*perNode).Node, v.Lost[0].Name, v.String(seen.End))
		require.InDelta(t, float64(s.Fault), float64(v.Lost[0].Heard), float64(2*time.Second))
	}
}

// TestHealthyJobsHaveNoVerdict: 30 minutes of jitter and checkpoints of 2 s.
func TestHealthyJobsHaveNoVerdict(t *testing.T) {
	for seed, size := range []int{2, 5, 16} {
		s := Healthy(seed, size, 30*time.Minute)
		seen, err := Watch(s, collective.Config{})
		require.NoError(t, err)
		for i := range seen.Events {
			t.Errorf("%d ranks, %s: %s", size, s.Layout, seen.Events[i].String(seen.End))
		}
	}
}

// slowdown is the share from which on iterations are reported in the tests here.
const slowdown = 0.15

// TestSlowdownIsDatedToItsStep: iterations of all ranks take half as long again from a moment on.
// The step of the verdict is that of the moment.
func TestSlowdownIsDatedToItsStep(t *testing.T) {
	for seed := range 12 {
		s := Slower(seed, 2+seed%7, 20*time.Minute)
		seen, err := Watch(s, collective.Config{Slowdown: slowdown})
		require.NoError(t, err)
		require.Len(t, seen.Last, 1, "seed %d, %s", seed, s.Layout)
		for i := range seen.Events {
			v := &seen.Events[i]
			text := v.String(seen.End)
			t.Logf("seed %d, %d ranks, %s: after %v: %s", seed, s.Size, s.Layout, time.Duration(v.At-s.Fault).Round(time.Second), text)
			require.Equal(t, collective.Slowdown, v.Reason, text)
			require.InDelta(t, 0, time.Duration(v.Since-s.Fault).Seconds(), max(8, 12*v.Before.Seconds()), "seed %d, %s: %s", seed, s.Layout, text)
			require.InDelta(t, 1.5, float64(v.After)/float64(v.Before), 0.1, text)
			period := float64(v.Seq) / float64(v.Step)
			require.InDelta(t, float64(s.issued(v.Communicator.Hash, s.Fault)), float64(v.Seq), 12*period, text)
		}
	}
}

// issued is how many collectives the first rank of a communicator had issued at a time.
func (s *Scenario) issued(hash uint64, at collective.Time) uint64 {
	for n := range s.Size {
		for _, o := range s.Job.Observe(n, at, 0) {
			if o.Communicator.Hash == hash {
				return o.Issued
			}
		}
	}
	return 0
}

// TestHealthyJobsAreNotSlower: checkpoints of 2 s are no change.
func TestHealthyJobsAreNotSlower(t *testing.T) {
	for seed := range 6 {
		s := Healthy(seed, 2+3*seed, 30*time.Minute)
		seen, err := Watch(s, collective.Config{Slowdown: slowdown})
		require.NoError(t, err)
		for i := range seen.Events {
			t.Errorf("%d ranks, %s: %s", s.Size, s.Layout, seen.Events[i].String(seen.End))
		}
	}
}
