// SPDX-License-Identifier: Apache-2.0

package pytorch

import (
	"flag"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject/flames"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject/usage"
)

var update = flag.Bool("update", false, "write docs/pictures/autograd.svg")

// leastComplete is the share of native stacks that reach Python or the thread's start.
const leastComplete = 0.98

// mostRounds bounds how long rules are waited for, in rounds of ten steps.
const mostRounds = 30

// mostReady is how long after the first steps stacks may be cut for want of rules: on an idle machine 3 s.
const mostReady = 15 * time.Second

// ends are the frames that stand for callers that are missing.
var ends = []string{stack.NoRules, stack.NotLoaded, stack.Broken, stack.StackUnreadable, stack.Busy, stack.Truncated}

// end is the frame of a folded stack that says why it is cut; empty: it is complete.
func end(folded string) string {
	for _, frame := range strings.Split(folded, "; ") {
		if slices.Contains(ends, frame) {
			return frame
		}
	}
	return ""
}

// start is the frame that called the others of a thread's native part: of the thread's start, or
// of what Python has called.
func start(folded string) string {
	frames := strings.Split(folded, "; ")
	for i, frame := range slices.Backward(frames) {
		if frame == stack.Autograd || frame == stack.Trampoline {
			return frames[min(i+1, len(frames)-1)]
		}
	}
	return frames[0]
}

// TestNativeStacksOfATrainingStepAreComplete: none of PyTorch's libraries has frame pointers. By
// default the driver's function and its caller are there, and no others.
func TestNativeStacksOfATrainingStepAreComplete(t *testing.T) {
	for _, c := range []struct {
		gadget, table string
		args          []string
	}{
		{"cuda_kernel", "calls", nil},
		{"cuda_alloc", "allocs", []string{"--torch", "on"}},
	} {
		short := callers{}
		for _, stacks := range []string{"auto", "all"} {
			t.Run(c.gadget+"/"+stacks, func(t *testing.T) {
				requirePyTorch(t)
				stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
				require.NoError(t, err)
				defer stats.Close()
				p := begin(t, nil, "training.py")
				a := trace[sized](t, p, c.gadget, c.table, append(c.args, "--native-stacks", stacks)...)
				var imported struct{ Imported string }
				var said struct{ Steps int }
				p.request("", &imported)
				a.attachedTorch(p.PID(), c.gadget)
				if stacks == "all" {
					after, cpu := ready(t, p, a)
					t.Logf("no stack is cut for want of rules %v after the first steps, which takes %v of a CPU", after.Round(time.Millisecond), cpu)
					require.Less(t, after, mostReady)
				}
				before := warmedUp(p, a)
				runsBefore, tookBefore := programRuns(t, a.cmd.Process.Pid)
				p.request("", &said)
				runsAfter, tookAfter := programRuns(t, a.cmd.Process.Pid)
				after := settled(a)

				short.see(t, stacks, after, before)
				all, whole, cut, starts := uint64(0), uint64(0), map[string]uint64{}, map[string]uint64{}
				for folded, n := range after {
					if n -= before[folded]; n == 0 {
						continue
					}
					all += n
					if why := end(folded); why != "" {
						cut[why] += n
						continue
					}
					starts[start(folded)] += n
					// The thread's start is libc's, and Python is called back by libtorch_python.
					if strings.Contains(start(folded), "libc.so.6)") || strings.Contains(start(folded), "(libtorch_python.so") {
						whole += n
					}
				}
				require.NotZero(t, all)
				runs, took := (runsAfter-runsBefore)/uint64(said.Steps), (tookAfter-tookBefore)/time.Duration(said.Steps)
				share := float64(whole) / float64(all)
				t.Logf("%d stacks, %.1f %% complete, cut %v; they begin in %v; %d runs and %v of eBPF in a step",
					all, 100*share, cut, starts, runs, took)
				if stacks == "auto" { // all of its stacks have Python
					require.Less(t, share, 0.5, "two frames are all that they have: then there is nothing to test")
				} else {
					require.GreaterOrEqual(t, share, leastComplete, "cut %v, begin in %v", cut, starts)
				}
				require.LessOrEqual(t, runs, uint64(mostRuns))
				// Stacks of the first steps are cut, which is counted by reason.
				lost := map[string]uint64{}
				for reason, n := range a.lost() {
					if strings.HasPrefix(reason, "native_") {
						lost[reason] = n
					}
				}
				if stacks == "all" {
					require.NotZero(t, lost["native_not_loaded"])
				}
				require.Zero(t, lost["native_broken"], "rules that are wrong: %v", lost)
				t.Logf("cut since attach: %v", lost)
				a.end(lost)
				if *update && stacks == "all" && c.gadget == "cuda_kernel" {
					require.NoError(t, os.WriteFile("../../../docs/pictures/autograd.svg", flames.SVG(launchesOfBackward(after, before), "", 4), 0o644))
				}
			})
		}
	}
}

// launchesOfBackward are those of two nodes of autograd since before, by stack: more would be too narrow
// to read.
func launchesOfBackward(after, before map[string]uint64) map[string]uint64 {
	launches := map[string]uint64{}
	for folded, n := range after {
		if n -= before[folded]; n > 0 && end(folded) == "" && strings.Contains(folded, "; "+stack.Autograd+"; ") &&
			(strings.Contains(folded, "::AddmmBackward0::") || strings.Contains(folded, "::NativeLayerNormBackward0::")) {
			launches[folded] = n
		}
	}
	return launches
}

// ready runs steps until no stack has been cut for want of rules for two seconds. It returns how long after the
// first ten steps the last one was, to the second in which drops are read, and the processor time of ig-gpu from
// the first of these steps on until then.
func ready(t *testing.T, p *program, a *agent[sized]) (after, cpu time.Duration) {
	t.Helper()
	used := func() time.Duration {
		user, system, err := usage.CPU(a.cmd.Process.Pid)
		require.NoError(t, err)
		return user + system
	}
	var said struct{ Steps int }
	before, cut := used(), uint64(0)
	p.request("", &said) // the model is made, and modules are loaded
	begun := time.Now()
	for time.Since(begun) < after+2*time.Second {
		p.request("", &said)
		if n := a.lost()["native_not_loaded"]; n != cut {
			cut, after, cpu = n, time.Since(begun), used()-before
		}
	}
	return after, cpu
}

// warmedUp runs steps until the modules are loaded, and the rules of their code: until a round cuts no
// stack for want of rules, which are read meanwhile. It returns what settled does.
func warmedUp(p *program, a *agent[sized]) (count map[string]uint64) {
	var said struct{ Steps int }
	for range 3 {
		p.request("", &said)
	}
	count = settled(a)
	for rounds := 0; rounds < mostRounds; rounds++ {
		missing := a.lost()["native_not_loaded"]
		p.request("", &said)
		if count = settled(a); a.lost()["native_not_loaded"] == missing {
			break
		}
	}
	return count
}

// settled is how many launches, or tensors, each stack has had, once the tables have stopped
// growing: the program waits for its next line.
func settled(a *agent[sized]) (count map[string]uint64) {
	a.t.Helper()
	seen, since := uint64(0), time.Now()
	a.until("the rows of all stacks", func() (bool, any) {
		count = map[string]uint64{}
		var all uint64
		for _, r := range a.rows {
			n := uint64(0)
			if r.Kernel != "" {
				n = r.Calls
			} else if r.Kind == "tensor" {
				n = r.AllocObjects
			}
			count[r.Stack] += n
			all += n
		}
		if all != seen {
			seen, since = all, time.Now()
		}
		return all > 0 && time.Since(since) > time.Second, all
	})
	return count
}
