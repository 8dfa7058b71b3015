// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/simranks/simnodes"
)

// TestRestartLosesOneWindow: an exporter is killed and another one starts. What was allocated is
// missing from the profiles for the time without an exporter and one window at most, nothing is
// there twice, and the verdicts that hold are reported again, and no others.
func TestRestartLosesOneWindow(t *testing.T) {
	requireBuilt(t)
	const hang, window, nodes = 2 * time.Second, 2 * time.Second, 12
	f, err := simnodes.New(simnodes.Config{Seed: 5, Nodes: nodes, Jobs: 6, MaxRanks: 64, Fault: 3 * time.Second})
	require.NoError(t, err)
	server, p := serve(t, f), startPyroscope(t)
	run := func() *exporter {
		return start(t, server.Addresses, "--hang", hang.String(), "--pyroscope-url", p.url, "--export-interval", window.String())
	}
	first := run()
	waitForAll(t, f, first, 5*time.Second+grace)
	requireTruth(t, f, first.verdicts(), hang)
	before := waitForWindow(t, p, nodes) // its end is the beginning of what can be lost
	from := time.Now()
	time.Sleep(window / 2)
	require.NoError(t, first.cmd.Process.Kill())
	<-first.done
	killed := time.Now()
	second := run()
	for deadline := killed.Add(20 * time.Second); second.logged("following instance cuda_alloc") < nodes; time.Sleep(20 * time.Millisecond) {
		require.True(t, time.Now().Before(deadline), "the second exporter does not follow all nodes")
	}
	without := time.Since(killed)
	var after map[string]uint64
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if after = p.allocated(); grown(before, after) == nodes {
			break
		}
		require.True(t, time.Now().Before(deadline), "the second exporter sends nothing")
	}
	elapsed := time.Since(from)
	// Each node allocates the same in each second.
	worst := time.Duration(0)
	for node := range after {
		seconds := time.Duration(float64(after[node]-before[node]) / float64(f.Rate()) * float64(time.Second))
		require.LessOrEqual(t, seconds, elapsed+time.Second, "%s: something is there twice", node)
		worst = max(worst, elapsed-seconds)
	}
	// The time without an exporter; the window that was not sent, and the last one, which is not
	// sent yet; and rows come once a second.
	require.Less(t, worst, without+2*window+2*time.Second)
	t.Logf("of %v, %v are missing, %v of them without an exporter: windows of %v", elapsed.Round(100*time.Millisecond), worst.Round(100*time.Millisecond), without.Round(100*time.Millisecond), window)

	for deadline := time.Now().Add(grace); len(second.verdicts()) < len(first.verdicts()) && time.Now().Before(deadline); {
		time.Sleep(100 * time.Millisecond)
	}
	require.Equal(t, texts(f, first.verdicts()), texts(f, second.verdicts()))
	second.end()
}

// waitForWindow returns when each node has sent another window, with the sums.
func waitForWindow(t *testing.T, p *pyroscope, nodes int) map[string]uint64 {
	t.Helper()
	before := p.allocated()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if now := p.allocated(); grown(before, now) == nodes {
			return now
		}
	}
	require.Fail(t, "not all nodes send profiles")
	return nil
}

func grown(before, after map[string]uint64) (n int) {
	for node, bytes := range after {
		if bytes > before[node] {
			n++
		}
	}
	return n
}

// texts of verdicts without what depends on the time: which truth each one is.
func texts(f *simnodes.Fleet, all []found) map[string]int {
	out := map[string]int{}
	for i := range all {
		name := "false: " + all[i].Text
		for _, j := range f.Jobs() {
			if truth := j.Truth(); j.Reason != "" && all[i].is(&truth) {
				name = fmt.Sprint(all[i].Event, " ", truth.Reason, " ", truth.Job)
			}
		}
		out[name]++
	}
	return maps.Clone(out)
}
