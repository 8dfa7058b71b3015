// SPDX-License-Identifier: Apache-2.0

// Package job runs train.py: ranks in processes of their own, which really
// wait for each other in the simulated NCCL, or in NCCL's own code.
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
	nccl := simulated.Copy(t, t.TempDir(), "simnccl", "libnccl.so.2")
	return start(t, nccl, []string{"SIMNCCL_DIR=" + t.TempDir()}, append([]string{"--name", name}, args...))
}

// StartReal runs them with NCCL's own code, from the directory that test/support/fixtures/nccl.sh prints. Each rank has a
// device of its own. The library itself, 2.22, keeps no names.
func StartReal(t *testing.T, libraries, name string, args ...string) *Job {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"libnccl.so.2", "libnvidia-ml.so.1"} {
		b, err := os.ReadFile(filepath.Join(libraries, name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), b, 0o755))
	}
	simulated.Copy(t, dir, "simcudart", "libcudart.so.12")
	environment := append(simulated.HostNCCLSettings(), "LD_LIBRARY_PATH="+dir, "SIMCUDA_DEVICES=8", "SIMNCCL_DIR="+t.TempDir())
	return start(t, filepath.Join(dir, "libnccl.so.2"), environment, append([]string{"--name", name, "--own-device"}, args...))
}

func start(t *testing.T, nccl string, environment, args []string) *Job {
	t.Helper()
	cmd := exec.Command("python3", append([]string{filepath.Join(simulated.Root(), "test/support/job/train.py"),
		"--libcuda", simulated.Copy(t, filepath.Dir(nccl), "simcuda", "libcuda.so.1"), "--libnccl", nccl}, args...)...)
	cmd.Env = append(append(os.Environ(), "SIMCUDA_INIT_MS=0"), environment...)
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
