// SPDX-License-Identifier: Apache-2.0

// Package job runs train.py: ranks in processes of their own, which really
// wait for each other in the simulated NCCL.
package job

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/simulated"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject"
)

// Job is a run whose ranks have loaded the libraries and wait for Begin. It ends with
// the test.
type Job struct {
	PIDs    []uint32 // by rank
	process *subject.Process
}

// Start runs the ranks of a job with this name, and more arguments of train.py. The
// libraries are copies for this test, so that no other processes have mapped them.
func Start(t *testing.T, name string, args ...string) *Job {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.Command("python3", append([]string{filepath.Join(simulated.Root(), "test/support/job/train.py"),
		"--libcuda", simulated.Copy(t, dir, "simcuda", "libcuda.so.1"),
		"--libnccl", simulated.Copy(t, dir, "simnccl", "libnccl.so.2"), "--name", name}, args...)...)
	cmd.Env = append(os.Environ(), "SIMCUDA_INIT_MS=0", "SIMNCCL_DIR="+t.TempDir())
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true} // its ranks end with it, the stopped one among them
	p := subject.Start(t, cmd)
	line := p.Line()
	var said struct{ Pids []uint32 }
	require.NoError(t, json.Unmarshal([]byte(line), &said), line)
	return &Job{PIDs: said.Pids, process: p}
}

// Begin lets the ranks begin.
func (j *Job) Begin() {
	j.process.Say("go")
}
