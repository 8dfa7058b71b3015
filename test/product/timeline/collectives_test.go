// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/bpftest"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/simulated"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject/tables"
)

// startTraining runs a training loop of two ranks until the test ends, and returns the
// ids of its processes.
func startTraining(t *testing.T) (pids []string) {
	t.Helper()
	bpftest.RequireRoot(t)
	cuda, nccl := simulated.Driver(t), simulated.NCCL(t)
	train := exec.Command("python3", "../../../examples/collectives/train.py", "--ranks", "2", "--libcuda", cuda, "--libnccl", nccl)
	p := subject.Start(t, train)
	t.Cleanup(func() { _ = train.Process.Signal(os.Interrupt); _ = train.Wait() }) // with its ranks
	line := p.Line()
	list, ok := strings.CutPrefix(line, "ready ")
	require.True(t, ok, line)
	return strings.Fields(list)
}

// TestCollectives: nccl_trace's data of a training loop is on a timeline, too: calls in
// their Python functions, and operations until they are done.
func TestCollectives(t *testing.T) {
	startTraining(t)

	path := filepath.Join(t.TempDir(), "trace.json.gz")
	var f *file
	var calls, done []slice
	// A busy machine may take longer than a run to attach.
	for begun := time.Now(); len(calls) == 0 || len(done) == 0; {
		require.Less(t, time.Since(begun), waitLimit, "the timeline is empty")
		cmd := exec.Command("../../../bin/ig-gpu", "run", "nccl_trace", "--host", "--timeout", "5", "-o", "none", "--timeline-out", path)
		text, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", text)
		f = read(t, path)
		calls, done = f.of(mainThread, "nccl"), nil
		for track := range f.tracks {
			if strings.HasPrefix(track, "NCCL, ") {
				done = append(done, f.of(track, "nccl")...)
			}
		}
	}
	require.Equal(t, "ncclAllReduce", calls[0].name)
	require.NotEmpty(t, f.named(mainThread, "Trainer.all_reduce"))
	byStart := map[uint64]slice{}
	for _, c := range calls {
		byStart[c.start] = c
	}
	matched := 0
	for _, o := range done {
		if c, ok := byStart[o.start]; ok {
			require.GreaterOrEqual(t, o.end, c.end, "done before its call has returned")
			matched++
		}
	}
	require.NotZero(t, matched)
}

// TestSendsLeadToReceives: ranks side by side, and an arrow from each send of a pipeline to
// the receive of the next stage.
func TestSendsLeadToReceives(t *testing.T) {
	bpftest.RequireRoot(t)
	cuda, nccl := simulated.Driver(t), simulated.NCCL(t)
	job := exec.Command("python3", "../../support/job/train.py", "--story", "pipeline", "--libcuda", cuda, "--libnccl", nccl)
	job.Env = append(os.Environ(), "SIMCUDA_INIT_MS=0", "SIMNCCL_DIR="+t.TempDir())
	p := subject.Start(t, job)
	defer p.End()
	line := p.Line()
	var said struct{ Pids []int }
	require.NoError(t, json.Unmarshal([]byte(line), &said))

	path := filepath.Join(t.TempDir(), "trace.json.gz")
	list := strings.ReplaceAll(strings.Trim(fmt.Sprint(said.Pids), "[]"), " ", ",")
	ig := exec.Command("../../../bin/ig-gpu", "run", "nccl_trace", "--host", "--pid", list, "--timeline-out", path,
		"-o", "attachments:json,collectives:json,hangs:none,drops:none")
	rows, err := ig.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, ig.Start())
	stop := time.AfterFunc(waitLimit, func() { _ = ig.Process.Kill() })
	defer stop.Stop()
	attached, isGoing := 0, false
	tabled := tables.Reader(rows)
	for reader := bufio.NewReaderSize(tabled, 1<<20); ; {
		row, err := reader.ReadBytes('\n')
		require.NoError(t, err, "ig-gpu has ended")
		if bytes.Contains(row, []byte(`"status":"attached"`)) {
			attached++
		}
		if attached == 2*len(said.Pids) && !isGoing { // both libraries of each
			isGoing = true
			p.Say("go")
		}
		var ranks []struct{ Issued int }
		if json.Unmarshal(row, &ranks) == nil && len(ranks) == len(said.Pids) && ranks[0].Issued > 20 {
			break
		}
	}
	require.NoError(t, ig.Process.Signal(os.Interrupt))
	_, _ = io.Copy(io.Discard, tabled)
	require.NoError(t, ig.Wait())

	f := read(t, path)
	within := func(track, name string, ns uint64) bool {
		for _, s := range f.tracks[track] {
			if s.name == name && s.start <= ns && ns <= s.end {
				return true
			}
		}
		return false
	}
	count := map[string]int{}
	for _, arrow := range f.flows {
		if arrow.name != "is received" {
			continue
		}
		count[arrow.from+" → "+arrow.to]++
		require.True(t, within(arrow.from, "ncclSend", arrow.fromNS), "it begins at no send: %v", arrow)
		require.True(t, within(arrow.to, "ncclRecv", arrow.toNS), "it ends at no receive: %v", arrow)
		require.Less(t, arrow.fromNS, arrow.toNS)
	}
	sends := len(f.named("NCCL, rank 0 of 3", "ncclSend"))
	require.Len(t, count, 2)
	for _, pair := range []string{"NCCL, rank 0 of 3 → NCCL, rank 1 of 3", "NCCL, rank 1 of 3 → NCCL, rank 2 of 3"} {
		require.InDelta(t, sends, count[pair], 2, "each send but the newest: %v", count)
	}
}
