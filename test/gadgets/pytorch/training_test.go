// SPDX-License-Identifier: Apache-2.0

package pytorch

import (
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gpu-gadgets/gpu-gadgets/examples/simcuda/journal"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject/usage"
)

// mostRuns of programs in a step of training.py: each driver call that is followed has two,
// each block of the pool one, and each backward pass one.
const mostRuns = 600

// TestNearlyAllWorkOfATrainingStepHasALine: two thirds of it are autograd's.
func TestNearlyAllWorkOfATrainingStepHasALine(t *testing.T) {
	for _, c := range []struct {
		gadget, table string
		args          []string
		least         float64
	}{
		{"cuda_kernel", "calls", nil, 0.95},
		{"cuda_alloc", "allocs", []string{"--torch", "on"}, 0.99},
	} {
		t.Run(c.gadget, func(t *testing.T) {
			requirePyTorch(t)
			stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
			require.NoError(t, err)
			defer stats.Close()
			p := begin(t, nil, "training.py")
			a := trace[sized](t, p, c.gadget, c.table, c.args...)
			var imported struct{ Imported string }
			var said struct{ Steps int }
			p.request("", &imported)
			a.attachedTorch(p.PID(), c.gadget)
			steps := 0
			var runs uint64
			var took time.Duration
			for range 4 {
				before, begun := programRuns(t, a.cmd.Process.Pid)
				p.request("", &said)
				steps += said.Steps
				after, ended := programRuns(t, a.cmd.Process.Pid)
				runs, took = (after-before)/uint64(said.Steps), (ended-begun)/time.Duration(said.Steps)
			}
			var line, all uint64
			a.until("all launches", func() (bool, any) {
				line, all = 0, 0
				for _, r := range a.rows {
					n := r.AllocBytes
					if c.gadget == "cuda_kernel" {
						n = r.Calls
					}
					if r.Kernel == "" && r.Kind != "tensor" {
						continue
					}
					all += n
					if lineOf(r.Frame) != "" {
						line += n
					}
				}
				return all > 0 && (c.gadget != "cuda_kernel" || all == launchesOf(p)), all
			})
			share := float64(line) / float64(all)
			t.Logf("%d steps: %.1f %% have a line; %d runs and %v of eBPF in a step", steps, 100*share, runs, took)
			require.GreaterOrEqual(t, share, c.least)
			if c.gadget == "cuda_alloc" {
				require.LessOrEqual(t, runs, uint64(mostRuns))
			}
			a.end(map[string]uint64{})
		})
	}
}

// launchesOf counts the kernels in the driver's journal.
func launchesOf(p *program) (n uint64) {
	j := p.journal(p.PID(), "cu")
	for _, r := range j.Records {
		if r.Type == journal.Work && isLaunch(j.APIName(r.API)) {
			n++
		}
	}
	return n
}

// programRuns sums what the eBPF programs of a process have run so far, without those that
// read its tables.
func programRuns(t *testing.T, pid int) (runs uint64, took time.Duration) {
	t.Helper()
	ids, err := usage.Programs(pid)
	require.NoError(t, err)
	require.NotEmpty(t, ids)
	for _, id := range ids {
		program, err := ebpf.NewProgramFromID(id)
		if err != nil {
			continue
		}
		info, err := program.Info()
		require.NoError(t, err)
		s, err := program.Stats()
		program.Close()
		require.NoError(t, err)
		if !strings.HasPrefix(info.Name, "dump_") {
			runs, took = runs+s.RunCount, took+s.Runtime
		}
	}
	return runs, took
}
