// SPDX-License-Identifier: Apache-2.0

package subject

import (
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestStepsAreAnsweredAndCounted(t *testing.T) {
	s := StartSteps(t, "SIMCUDA_CAPACITY=1MiB")
	s.Load()
	s.Do("alloc weights 3 4096")
	s.Do("free weights 1")
	require.Equal(t, "ok 1", s.Request("alloc logits 1 %d", 1<<30))
	truth := s.Truth()
	require.EqualValues(t, 3*4096, truth.AllocBytes)
	require.EqualValues(t, 2*4096, truth.InUseBytes())
	require.False(t, s.HasEnded())
	s.End()
	require.True(t, s.HasEnded())
	require.Regexp(t, `^weights \(steps.py:\d+\)$`, Frame(t, "weights"))
}

// A child that holds the pipe and writes more than is read must not block the end.
func TestKillLeavesNothingOfAGroup(t *testing.T) {
	alive, held, err := os.Pipe() // ends with the last process that has it
	require.NoError(t, err)
	defer alive.Close()
	t.Run("test", func(t *testing.T) {
		cmd := exec.Command("sh", "-c", "sleep 1000 & yes & echo begun; wait")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		cmd.ExtraFiles = []*os.File{held}
		p := Start(t, cmd)
		require.NoError(t, held.Close())
		for p.Line() != "begun" {
		}
	})
	require.NoError(t, alive.SetReadDeadline(time.Now().Add(2*time.Minute)))
	_, err = alive.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
}
