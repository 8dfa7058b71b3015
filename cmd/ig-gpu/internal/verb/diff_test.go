// SPDX-License-Identifier: Apache-2.0

package verb

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/format/pprof"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
)

func held(function string, line uint32, bytes, objects int64) profile.Row {
	return profile.Row{
		Process: profile.Process{ID: 1, PID: 7, Comm: "python3"}, Kind: "device",
		Stack: stack.Stack{{Kind: stack.KindPython, Function: function, File: "/app/serve.py", Line: line}},
		Values: profile.Values{
			AllocBytes: bytes, AllocObjects: objects, InuseBytes: bytes, InuseObjects: objects, PeakBytes: bytes,
		},
	}
}

func writeProfile(t *testing.T, name string, rows ...profile.Row) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	file, err := os.Create(path)
	require.NoError(t, err)
	require.NoError(t, pprof.Encode(file, profile.New(time.Unix(1, 0), rows)))
	require.NoError(t, file.Close())
	return path
}

func TestDiffNamesTheLineThatTookTheDifference(t *testing.T) {
	before := writeProfile(t, "before.pb.gz",
		held("load", 10, 4<<30, 32), held("cache", 20, 26<<20, 1), held("batch", 30, 8<<20, 2))
	after := writeProfile(t, "after.pb.gz",
		held("load", 10, 4<<30, 32), held("cache", 20, 78<<20, 3))
	page := filepath.Join(t.TempDir(), "diff.html")

	var out bytes.Buffer
	cmd := newDiff()
	cmd.SetOut(&out)
	cmd.SetArgs([]string{before, after, "--flamegraph-out", page})
	require.NoError(t, cmd.Execute())
	require.Equal(t, `       GREW  FREED    BEFORE     AFTER  OBJECTS  DEVICE    KIND FRAME
  +52.0 MiB    0 B  26.0 MiB  78.0 MiB       +2       0  device cache (serve.py:20)
  -8.00 MiB    0 B  8.00 MiB       0 B       -2       0  device batch (serve.py:30)
  +44.0 MiB    0 B  4.03 GiB  4.08 GiB       +0                 (all)
`, out.String())
	html, err := os.ReadFile(page)
	require.NoError(t, err)
	require.Contains(t, string(html), "serve.py")
}

func TestDiffSaysWhichFileItCannotRead(t *testing.T) {
	good := writeProfile(t, "good.pb.gz", held("load", 10, 1, 1))
	bad := filepath.Join(t.TempDir(), "bad")
	require.NoError(t, os.WriteFile(bad, []byte("no profile"), 0o600))
	for _, args := range [][]string{{good, bad}, {bad, good}, {good, bad + "-missing"}} {
		cmd := newDiff()
		cmd.SetArgs(args)
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		require.ErrorContains(t, cmd.Execute(), bad)
	}
}
