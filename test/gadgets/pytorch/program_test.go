// SPDX-License-Identifier: Apache-2.0

// Package pytorch tests bin/ig-gpu on real PyTorch, on the simulated driver, runtime and
// NCCL (scripts/pytorch.sh). What is right comes from PyTorch itself
// (torch.cuda.memory_allocated, its recorder of blocks) and from the journals of the
// simulated libraries, whose records have the line of Python that lines.py set.
package pytorch

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/examples/simcuda/journal"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject"
)

// program is a program of this folder.
type program struct {
	*subject.Process
	t   *testing.T
	dir string // journals of the driver and of NCCL
}

// begin starts a program up to its import of PyTorch: its first line is {"begun": PID}.
func begin(t *testing.T, env []string, script string, args ...string) *program {
	t.Helper()
	requirePyTorch(t)
	p := &program{t: t, dir: t.TempDir()}
	cmd := exec.Command("../../../scripts/pytorch.sh", append([]string{script}, args...)...)
	cmd.Env = append(append(os.Environ(), "SIMCUDA_JOURNAL="+p.dir, "SIMNCCL_JOURNAL="+p.dir, "SIMCUDA_INIT_MS=0",
		"SIMNCCL_DIR="+t.TempDir(), "PYTHONDONTWRITEBYTECODE=1", "OMP_NUM_THREADS=1"), env...)
	p.Process = subject.Start(t, cmd)
	var first struct{ Begun int }
	p.answer(&first)
	require.Equal(t, p.PID(), first.Begun)
	return p
}

// answer reads the program's next line of JSON; what libraries print is passed over.
func (p *program) answer(to any) {
	p.t.Helper()
	for {
		if text := p.Line(); strings.HasPrefix(text, "{") {
			require.NoError(p.t, json.Unmarshal([]byte(text), to), text)
			return
		}
	}
}

// request sends a line and reads the answer.
func (p *program) request(line string, to any) {
	p.t.Helper()
	p.Say("%s", line)
	p.answer(to)
}

// journal is the driver's, or NCCL's, of a process so far.
func (p *program) journal(pid int, library string) *journal.Journal {
	p.t.Helper()
	paths, err := filepath.Glob(filepath.Join(p.dir, fmt.Sprintf("%d-*.journal", pid)))
	require.NoError(p.t, err)
	for _, path := range paths {
		j, err := journal.ReadFile(path)
		require.NoError(p.t, err)
		if len(j.APIs) > 1 && strings.HasPrefix(j.APIs[1], library) {
			require.Zero(p.t, j.Lost)
			return j
		}
	}
	require.Fail(p.t, "no journal", "of %s in %d of %v", library, pid, paths)
	return nil
}

// lines are the lines of Python of a process, by tag.
func (p *program) lines(pid int) map[uint64]string {
	p.t.Helper()
	text, err := os.ReadFile(filepath.Join(p.dir, fmt.Sprintf("%d.lines", pid)))
	require.NoError(p.t, err)
	lines := map[uint64]string{0: ""}
	for line := range strings.Lines(string(text)) {
		number, where, _ := strings.Cut(strings.TrimSpace(line), "\t")
		tag, err := strconv.ParseUint(number, 10, 64)
		require.NoError(p.t, err, line)
		lines[tag] = where
	}
	return lines
}

// fails waits for an end that is an error.
func (p *program) fails() *exec.ExitError {
	p.t.Helper()
	var exit *exec.ExitError
	require.ErrorAs(p.t, p.Cmd.Wait(), &exit)
	return exit
}
