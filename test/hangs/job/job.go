// SPDX-License-Identifier: Apache-2.0

// Package job runs test/hangs' train.py: ranks in processes of their own, which really
// wait for each other in the simulated NCCL.
package job

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Job is a run whose ranks have loaded the libraries and wait for Begin. It ends with
// the test.
type Job struct {
	PIDs  []uint32 // by rank
	t     *testing.T
	stdin io.Writer
}

// Start runs the ranks of a job with this name, and more arguments of train.py. The
// libraries are built for this test, so that nobody else's processes have mapped them.
func Start(t *testing.T, name string, args ...string) *Job {
	t.Helper()
	_, here, _, ok := runtime.Caller(0)
	require.True(t, ok)
	root := filepath.Join(filepath.Dir(here), "../../..")
	dir := t.TempDir()
	library := func(example, pattern string) string {
		out, err := exec.Command("make", "-s", "-C", filepath.Join(root, "examples", example), "OUT="+dir).CombinedOutput()
		require.NoError(t, err, "%s", out)
		found, err := filepath.Glob(filepath.Join(dir, pattern))
		require.NoError(t, err)
		require.NotEmpty(t, found)
		return found[0]
	}
	cmd := exec.Command("python3", append([]string{filepath.Join(root, "test/hangs/train.py"),
		"--libcuda", library("simcuda", "libcuda.so.*"), "--libnccl", library("simnccl", "libnccl.so.*"), "--name", name}, args...)...)
	cmd.Env = append(os.Environ(), "SIMCUDA_INIT_MS=0", "SIMNCCL_DIR="+t.TempDir())
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL) // its ranks, too, the stopped one among them
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	require.NoError(t, err)
	var said struct{ Pids []uint32 }
	require.NoError(t, json.Unmarshal(line, &said))
	return &Job{PIDs: said.Pids, t: t, stdin: stdin}
}

// Begin lets the ranks begin.
func (j *Job) Begin() {
	j.t.Helper()
	_, err := fmt.Fprintln(j.stdin, "go")
	require.NoError(j.t, err)
}
