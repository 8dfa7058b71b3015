// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestCtrlCAtTheStartIsNotTheFaultOfTheStep that notices it: reading an image, loading a program.
func TestCtrlCAtTheStartIsNotTheFaultOfTheStep(t *testing.T) {
	pid := working(t)
	igGPU(t, "version") // it is there, and we are root
	interrupted := 0
	for delay := time.Duration(0); delay < time.Second; delay += 70 * time.Millisecond {
		cmd := exec.Command("../../../bin/ig-gpu", "record", pid, "--for", "0", "-o", t.TempDir()+"/memory.pb.gz")
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		cmd.Stderr = cmd.Stdout // the pipe, too
		require.NoError(t, cmd.Start())
		killer := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
		var all strings.Builder
		buffer := make([]byte, 4096)
		for !strings.Contains(all.String(), "until Ctrl-C") {
			n, err := out.Read(buffer)
			require.NoError(t, err, all.String())
			all.Write(buffer[:n])
		}
		time.Sleep(delay)
		require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
		for {
			n, err := out.Read(buffer)
			all.Write(buffer[:n])
			if err != nil {
				break
			}
		}
		err = cmd.Wait()
		require.True(t, killer.Stop(), "it does not end: %s", all.String())
		if err == nil {
			require.Contains(t, all.String(), "Wrote ")
			continue
		}
		interrupted++
		require.Regexp(t, `Error: cuda_alloc was interrupted before it traced anything: nothing is recorded\n$`, all.String(), "after %v", delay)
	}
	require.NotZero(t, interrupted, "no moment was early enough")
}

// TestAProcessThatHasEndedIsNamed, and not the steps that led to it.
func TestAProcessThatHasEndedIsNamed(t *testing.T) {
	ended := exec.Command("true")
	require.NoError(t, ended.Run())
	_, text, err := igGPU(t, "record", fmt.Sprint(ended.Process.Pid), "--for", "1s", "-o", t.TempDir()+"/memory.pb.gz")
	require.Error(t, err)
	require.Regexp(t, `(?m)^Error: process `+fmt.Sprint(ended.Process.Pid)+`: `, text)
}

// TestARecordingOfTheCPUEndsWithItsProcess: nothing is attached to it, so that no event reports its end.
func TestARecordingOfTheCPUEndsWithItsProcess(t *testing.T) {
	busy := exec.Command("python3", "-c", "import time\nend = time.time() + 8\nwhile time.time() < end: pass")
	require.NoError(t, busy.Start())
	t.Cleanup(func() { _ = busy.Wait() }) // until then it is a zombie
	file := t.TempDir() + "/cpu.pb.gz"
	cmd, _, stderr := command(t, "record", fmt.Sprint(busy.Process.Pid), "--what", "cpu", "--for", "0", "-o", file)
	require.NoError(t, cmd.Start())
	killer := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	err := cmd.Wait()
	require.True(t, killer.Stop(), "it does not end: %s", stderr)
	require.NoError(t, err, stderr.String())
	require.FileExists(t, file)
}
