// SPDX-License-Identifier: Apache-2.0

package subject

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/examples/simcuda/journal"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/simulated"
)

// source is the program of Steps.
func source() string { return filepath.Join(simulated.Root(), "test/product/e2e/testdata/steps.py") }

// Steps is a process of steps.py: it calls the simulated driver on request, and each
// answer begins with ok and the driver's error.
type Steps struct {
	*Process
	Dir string // journals of the driver
}

// StartSteps starts the process. It does not load the driver yet.
func StartSteps(t testing.TB, env ...string) *Steps {
	t.Helper()
	s := &Steps{Dir: t.TempDir()}
	cmd := exec.Command("python3", source())
	cmd.Env = append(append(os.Environ(), "SIMCUDA_JOURNAL="+s.Dir, "SIMCUDA_INIT_MS=0"), env...)
	s.Process = Start(t, cmd)
	return s
}

// Do sends a step that the driver is to grant in full.
func (s *Steps) Do(format string, args ...any) {
	s.t.Helper()
	require.Equal(s.t, "ok 0", s.Request(format, args...), format)
}

// Load lets it load the simulated driver, built from today's sources.
func (s *Steps) Load() {
	s.t.Helper()
	s.Do("load %s", simulated.Driver(s.t))
}

// Truth is the driver's own sums of the process, also while it lives.
func (s *Steps) Truth() journal.Total {
	s.t.Helper()
	for _, total := range s.Summary().Totals {
		if total.Process.PID == uint32(s.PID()) {
			return total
		}
	}
	require.Fail(s.t, "the driver kept no journal")
	return journal.Total{}
}

// Summary is the sums of all processes, also of its children.
func (s *Steps) Summary() *journal.Summary {
	s.t.Helper()
	journals, err := journal.ReadDir(s.Dir)
	require.NoError(s.t, err)
	summary, err := journal.Summarize(journals)
	require.NoError(s.t, err)
	return summary
}

// Frame returns a function of steps.py as it is shown in a row.
func Frame(t testing.TB, function string) string {
	t.Helper()
	text, err := os.ReadFile(source())
	require.NoError(t, err)
	line := 0
	for text := range strings.Lines(string(text)) {
		line++
		if strings.HasSuffix(strings.TrimSpace(text), "# line of "+function) {
			return fmt.Sprintf("%s (steps.py:%d)", function, line)
		}
	}
	require.Fail(t, "no such function: "+function)
	return ""
}
