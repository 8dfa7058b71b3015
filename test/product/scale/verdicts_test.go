// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/collective"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/simranks/simnodes"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject"
)

// grace is how long after the threshold a verdict may come.
const grace = 10 * time.Second

// size of a fleet, and how long what takes.
type size struct {
	nodes, jobs, ranks int
	fault, spread      time.Duration
	hang               time.Duration
	straggle           time.Duration
	watched            time.Duration // for stragglers, after the last fault
}

// small is a fleet for make test. Stragglers are found over 32 steps at least.
func small() size {
	return size{nodes: 32, jobs: 20, ranks: 4096, fault: 5 * time.Second, spread: time.Second, hang: 2 * time.Second}
}

func current(t testing.TB) size {
	t.Helper()
	if subject.Volume(0, 1) == 1 {
		return large(t)
	}
	return small()
}

// large is a thousand nodes, or SCALE_NODES, with as many jobs and ranks for each node.
func large(t testing.TB) size {
	t.Helper()
	nodes := nodesOr(t, 1000)
	return size{nodes: nodes, jobs: nodes / 5, ranks: 4096 * nodes / 1000, fault: 25 * time.Second, spread: 5 * time.Second, hang: 10 * time.Second,
		straggle: 250 * time.Millisecond, watched: 60 * time.Second}
}

func nodesOr(t testing.TB, number int) int {
	t.Helper()
	text := os.Getenv("SCALE_NODES")
	if text == "" {
		return number
	}
	nodes, err := strconv.Atoi(text)
	require.NoError(t, err)
	return nodes
}

func (s size) fleet(t testing.TB) *simnodes.Fleet {
	t.Helper()
	f, err := simnodes.New(simnodes.Config{Seed: 1, Nodes: s.nodes, Jobs: s.jobs, MaxRanks: s.ranks, Fault: s.fault, FaultSpread: s.spread, Straggle: s.straggle})
	require.NoError(t, err)
	return f
}

func serve(t testing.TB, f *simnodes.Fleet) *simnodes.Server {
	t.Helper()
	server, err := f.Serve()
	require.NoError(t, err)
	t.Cleanup(server.Close)
	return server
}

// TestEveryVerdictIsRight: each job with a fault has its one verdict, in time, and no other job
// has any.
func TestEveryVerdictIsRight(t *testing.T) {
	s := current(t)
	requireBuilt(t)
	f := s.fleet(t)
	e := start(t, serve(t, f).Addresses, "--hangs", "--hang", s.hang.String())
	end := s.fault + s.spread + max(s.hang+grace, s.watched)
	if s.straggle == 0 {
		waitForAll(t, f, e, s.fault+s.spread+s.hang+grace)
	} else {
		time.Sleep(time.Until(f.Wall(end)))
	}
	u := e.taken()
	at := f.Now()
	e.end()
	worst := requireTruth(t, f, e.verdicts(), s.hang)
	t.Logf("%d nodes, %d jobs, %d ranks of all communicators: the last verdict %v after its threshold; %v of processor time in %v, %d MiB at most, %d files",
		s.nodes, s.jobs, f.Ranks(), worst.Round(100*time.Millisecond), u.cpu, at.Round(time.Second), u.resident, u.files)
}

// waitForAll until there are as many verdicts as faults, and two seconds more for false ones.
func waitForAll(t *testing.T, f *simnodes.Fleet, e *exporter, limit time.Duration) {
	t.Helper()
	faults := 0
	for _, j := range f.Jobs() {
		if j.Reason != "" {
			faults++
		}
	}
	for f.Now() < limit && len(e.verdicts()) < faults {
		time.Sleep(100 * time.Millisecond)
	}
	time.Sleep(2 * time.Second)
}

// requireTruth compares verdicts with the faults. It returns how long after its threshold the last
// one came.
func requireTruth(t *testing.T, f *simnodes.Fleet, all []found, hang time.Duration) (worst time.Duration) {
	t.Helper()
	isRight := make([]bool, len(all))
	byReason := map[collective.Reason]int{}
	for _, j := range f.Jobs() {
		if j.Reason == "" {
			continue
		}
		truth := j.Truth()
		n := 0
		for i := range all {
			v := &all[i]
			if v.Event != "found" || !v.is(&truth) {
				continue
			}
			isRight[i] = true
			n++
			threshold := f.Wall(truth.Since)
			if truth.Reason == collective.Straggler {
				continue // it is found over many steps
			}
			if truth.Reason != collective.Mismatch {
				threshold = threshold.Add(hang)
			}
			worst = max(worst, v.At.Sub(threshold))
			if late := v.At.Sub(threshold); late > grace || late < -100*time.Millisecond {
				t.Errorf("%s of %s came %v after its threshold", truth.Reason, truth.Job, late)
			}
		}
		if n == 1 {
			byReason[truth.Reason]++
		} else {
			t.Errorf("%d verdicts instead of 1 are: %+v", n, truth)
		}
	}
	for i, right := range isRight {
		if !right {
			t.Errorf("not the truth: %s %s %s", all[i].Event, all[i].Reason, all[i].Text)
		}
	}
	t.Logf("right: %v", byReason)
	return worst
}
