// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject/usage"
)

// programRuns counts how often the programs of probes of PyTorch ran, by name, of a process that
// has loaded them; and how many programs of probes it has.
func programRuns(t *testing.T, pid int) (runs map[string]uint64, probes int) {
	t.Helper()
	ids, err := usage.Programs(pid)
	require.NoError(t, err)
	runs = map[string]uint64{}
	for _, id := range ids {
		p, err := ebpf.NewProgramFromID(id)
		if err != nil {
			continue
		}
		info, err := p.Info()
		require.NoError(t, err)
		if p.Type() == ebpf.Kprobe {
			probes++
			if strings.HasPrefix(info.Name, "torch_") {
				s, err := p.Stats()
				require.NoError(t, err)
				runs[info.Name] += s.RunCount
			}
		}
		p.Close()
	}
	return runs, probes
}

// TestOptionsInUserSpaceRunNoProgram: with each option that works in user space, the programs of
// PyTorch's pool run exactly as often as without one, and the same functions are probed.
func TestOptionsInUserSpaceRunNoProgram(t *testing.T) {
	stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	require.NoError(t, err)
	defer stats.Close()
	cost := func(options ...string) (reports uint64, functions int) {
		s := startServer(t, "serve.py")
		r := start(t, append([]string{"--pid", fmt.Sprint(s.PID()), "--torch", "on"}, options...)...)
		r.waitTorch(s)
		for range 5 {
			s.request()
		}
		runs, probes := programRuns(t, r.cmd.Process.Pid)
		require.Greater(t, probes, 2)
		for _, n := range runs {
			reports += n
		}
		for _, a := range r.attachments {
			if a.Status == "attached" {
				functions += a.Symbols
			}
		}
		code, _ := r.interrupt()
		require.Zero(t, code, r.errors())
		s.End()
		return reports, functions
	}
	reports, functions := cost()
	require.Greater(t, reports, uint64(50))
	dir := t.TempDir()
	withReports, withFunctions := cost("--snapshot-out", filepath.Join(dir, "s.pickle"), "--labels", "slurm,ray,vllm",
		"--mark-out", filepath.Join(dir, "m"), "--mark-on-frame", "nowhere.called", "--mark-dump",
		"--metrics-listen", "127.0.0.1:0", "--metrics-idle-holders", "30m", "--metrics-frozen", "5m")
	require.Equal(t, reports, withReports)
	require.Equal(t, functions, withFunctions)
}

// TestWithoutWasteNoRequestIsProbed: --waste adds one run for each request, and without it there is no
// run at all.
func TestWithoutWasteNoRequestIsProbed(t *testing.T) {
	requireX86(t)
	stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	require.NoError(t, err)
	defer stats.Close()
	const blocks = wasteRequests + 1 + 9*wasteSegments // all of them, and the batches that are freed
	for _, requests := range []uint64{0, wasteRequests} {
		s := startServer(t, "waste.py")
		args := []string{"--pid", fmt.Sprint(s.PID()), "--torch", "on"}
		if requests > 0 {
			args = append(args, "--waste")
		}
		r := start(t, args...)
		r.waitTorch(s)
		if requests > 0 {
			r.waitRequests()
		}
		s.Say("")
		s.Expect("allocated")
		runs, _ := programRuns(t, r.cmd.Process.Pid)
		require.EqualValues(t, requests, runs["torch_malloc"])
		delete(runs, "torch_malloc")
		var reports uint64
		for _, n := range runs {
			reports += n
		}
		require.EqualValues(t, blocks, reports)
		code, _ := r.interrupt()
		require.Zero(t, code, r.errors())
		s.End()
	}
}
