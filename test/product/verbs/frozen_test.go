// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject"
)

// TestFrozenNamesTheProcessesThatWaitForEachOther: an engine waits for the answer of a worker,
// which waits for an order of the engine. Another worker computes.
func TestFrozenNamesTheProcessesThatWaitForEachOther(t *testing.T) {
	p := subject.Start(t, exec.Command("python3", "testdata/frozen.py"))
	var engine, worker, other uint32
	line := p.Line()
	_, err := fmt.Sscan(line, &engine, &worker, &other)
	require.NoError(t, err, line)
	t.Cleanup(func() {
		for _, pid := range []uint32{worker, other} {
			_ = exec.Command("kill", "-9", fmt.Sprint(pid)).Run()
		}
		_ = p.Cmd.Process.Kill()
	})
	pid := fmt.Sprint(engine)

	out, text, err := igGPU(t, "dump", pid, "--frozen", "2s")
	require.NoError(t, err, text)
	require.Contains(t, out, "processes did not move.\n", "the engine waits for its input, which is not another's of these")
	require.NotContains(t, out, "wait for each other")

	p.Say("wait")
	require.Eventually(t, func() bool {
		stack, _, err := igGPU(t, "dump", pid)
		return err == nil && strings.Contains(stack, "await_order")
	}, 60*time.Second, time.Second)
	out, text, err = igGPU(t, "dump", pid, "--frozen", "3s")
	require.NoError(t, err, text)
	first, second := min(engine, worker), max(engine, worker)
	require.Contains(t, out, fmt.Sprintf("Deadlock: processes %d, %d wait for each other (%d → %d → %d)", first, second, first, second, first))
	require.Regexp(t, fmt.Sprintf(`thread %d at engine \(frozen.py:\d+\), in .*\n    waits in read for a pipe, which process %d can end`, engine, worker), out)
	require.Regexp(t, fmt.Sprintf(`thread %d at await_order \(frozen.py:\d+\), in .*\n    waits in read for a socket, which process %d can end`, worker, engine), out)
	require.Regexp(t, fmt.Sprintf(`Process %d python3 (moves|runs|moves within)`, other), out)

	out, text, err = igGPU(t, "dump", pid, "--frozen", "2s", "-o", "json")
	require.NoError(t, err, text)
	motions := map[uint32]string{}
	for line := range strings.Lines(out) {
		var row struct {
			PID      uint32
			Motion   string
			Deadlock bool
			Circle   []uint32
		}
		require.NoError(t, json.Unmarshal([]byte(line), &row), line)
		motions[row.PID] = row.Motion
		require.Equal(t, row.PID != other, row.Deadlock)
		if row.Deadlock {
			require.Equal(t, []uint32{first, second}, row.Circle)
		}
	}
	require.Contains(t, []string{"moves", "runs", "loops"}, motions[other])
	delete(motions, other)
	require.Equal(t, map[uint32]string{engine: "frozen", worker: "frozen"}, motions)
}
