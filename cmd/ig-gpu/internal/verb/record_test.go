// SPDX-License-Identifier: Apache-2.0

package verb

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/cmd/ig-gpu/internal/engine"
)

var errNoFile = errors.New("no such file or directory")

// refusing is an engine that cannot write a file.
type refusing struct{}

func (refusing) Run(_ context.Context, run engine.Run) error {
	return fmt.Errorf("run %s: --pid: --%s: create %s: %w", run.Gadget, run.Flags[0].Name, run.Flags[0].Value, errNoFile)
}

func TestErrorsNameWhatTheUserTyped(t *testing.T) {
	_, _, err := execute(t, Config{Engine: refusing{}, ProcFS: procfs(t)}, "record", "7", "-o", "/none/m.html")
	require.ErrorIs(t, err, errNoFile)
	require.EqualError(t, err, "run cuda_alloc: -o /none/m.html: create /none/m.html: no such file or directory")
}

func TestARecordingOfNothingIsSaidToBeOne(t *testing.T) {
	root := procfs(t)
	dir := filepath.Join(root, "2")
	require.NoError(t, os.Mkdir(dir, 0o755))
	for name, text := range map[string]string{"maps": "", "comm": "kthreadd\n", "stat": "2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 0 0 0 20 0 1 0 4 0 0\n"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	file := filepath.Join(t.TempDir(), "m.html")
	said := func(args ...string) string {
		_, stderr, err := execute(t, Config{Engine: &recorder{}, ProcFS: root}, append([]string{"record", "-o", file}, args...)...)
		require.NoError(t, err)
		return stderr
	}
	const eight = "process 8 (python3 serve\ufffd[31m.py) has not loaded libcuda.so.1"
	require.Equal(t, "Recording memory of process 8 for 30s (Ctrl-C ends it sooner)\n"+
		"Warning: "+eight+": nothing is recorded until it does\n"+
		"Warning: nothing was recorded: "+eight+"\n"+
		"Wrote "+file+", flame graph: open it in a browser\n", said("8"))
	require.Contains(t, said("2"), "Warning: process 2 ([kthreadd]) is a kernel thread, which uses no GPU\n")
	loaded := said("7")
	require.NotContains(t, loaded, "has not loaded")
	require.Contains(t, loaded, "Warning: nothing was recorded: no process allocated or freed GPU memory\n")
	require.Contains(t, said("8", "--what", "cpu"), "Recording what process 8 does on the CPU for 30s")
}

func TestARecordingNamesTheProcessesThatEnded(t *testing.T) {
	now := time.Now()
	r := recorded{procfs: procfs(t), of: recordings()[0], vendor: nvidia, pids: []uint32{7, 8}, attached: now, isAny: true}
	var out bytes.Buffer
	r.conclude(&out, map[uint32]time.Time{8: now.Add(1730 * time.Millisecond)})
	require.Equal(t, "Process 8 ended 1.7s into the recording\n", out.String())
}

func TestWarningsOfARecordingHaveColourOnlyWhereTheTerminalHas(t *testing.T) {
	for want, c := range map[string]Config{"\x1b[33mWARN": {}, `level=warning msg="a probe is missing"`: {Console: nowhere{}}} {
		here, there, err := pty.Open()
		require.NoError(t, err)
		defer here.Close()
		defer there.Close()
		warnings(c, there).Warn("a probe is missing")
		text := make([]byte, 1000)
		n, err := here.Read(text)
		require.NoError(t, err)
		require.Contains(t, string(text[:n]), want)
	}
}
