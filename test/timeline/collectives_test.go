// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/bpftest"
)

// TestCollectives: what nccl_trace sees of a training loop is on a timeline, too: calls
// in their Python functions, and operations until they are done.
func TestCollectives(t *testing.T) {
	bpftest.RequireRoot(t)
	cuda, err := filepath.Abs("../../build/simcuda/libcuda.so.1")
	require.NoError(t, err)
	nccl, err := filepath.Abs("../../build/simnccl/libnccl.so.2")
	require.NoError(t, err)
	require.FileExists(t, nccl, "run make simcuda")
	train := exec.Command("python3", "../../examples/collectives/train.py", "--ranks", "2", "--libcuda", cuda, "--libnccl", nccl)
	train.Stderr = os.Stderr
	in, err := train.StdinPipe()
	require.NoError(t, err)
	defer in.Close()
	out, err := train.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, train.Start())
	defer func() { _ = train.Process.Signal(os.Interrupt); _ = train.Wait() }()
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(line, "ready "), line)

	path := filepath.Join(t.TempDir(), "trace.json.gz")
	var f *file
	var calls, done []slice
	// A busy machine may take longer than a run to attach.
	for begun := time.Now(); len(calls) == 0 || len(done) == 0; {
		require.Less(t, time.Since(begun), patience, "nothing is drawn")
		cmd := exec.Command("../../bin/ig-gpu", "run", "nccl_trace", "--host", "--timeout", "5", "-o", "none", "--timeline-out", path)
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
