// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
)

// python runs a program, and returns its process and the first line that it prints. It ends with the test.
func python(t *testing.T, arguments ...string) (pid uint32, line string) {
	t.Helper()
	cmd := exec.Command("python3", arguments...)
	cmd.Stderr = os.Stderr
	_, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	line, err = bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	return uint32(cmd.Process.Pid), line
}

// A process may have 64 GiB of arguments, without a capability.
func TestWhatIsReadIsBounded(t *testing.T) {
	pid, line := python(t, "testdata/start.py")
	if line != "ready\n" {
		t.Skip("not possible here: ", line)
	}
	f, err := os.Open(filepath.Join("/proc", strconv.Itoa(int(pid)), "environ"))
	require.NoError(t, err)
	defer f.Close()
	n, err := io.Copy(io.Discard, io.LimitReader(f, 8*MaxBytes))
	require.NoError(t, err)
	require.EqualValues(t, 8*MaxBytes, n, "the test tests nothing")

	environment, err := ReadEnvironment("/proc", pid, MaxBytes)
	require.NoError(t, err)
	require.Len(t, environment, MaxBytes)
	require.Equal(t, strings.Repeat("a", 4096), CommandLine("/proc", pid, 4096))
}

// A pipe without a writer blocks like the lock of a process that hangs in a driver.
func TestAProcessThatHangsDoesNotBlock(t *testing.T) {
	procfs := t.TempDir()
	for pid, name := range map[string]string{"7": "environ", "8": "cmdline"} {
		require.NoError(t, os.Mkdir(filepath.Join(procfs, pid), 0o755))
		pipe := filepath.Join(procfs, pid, name)
		require.NoError(t, unix.Mkfifo(pipe, 0o600))
		t.Cleanup(func() { // ends the read
			f, err := os.OpenFile(pipe, os.O_WRONLY, 0)
			require.NoError(t, err)
			f.Close()
		})
	}
	began := time.Now()
	const often = 40 // so that a busy machine makes no difference
	for range often {
		_, err := ReadEnvironment(procfs, 7, MaxBytes)
		require.ErrorIs(t, err, procmaps.ErrHangs)
		require.Empty(t, CommandLine(procfs, 8, 4096))
	}
	require.Less(t, time.Since(began), often*100*time.Millisecond, "it is not waited for again")
	require.Contains(t, CommandLine("/proc", uint32(os.Getpid()), 4096), "memory.test")
}

func TestVariablesAndArguments(t *testing.T) {
	procfs := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(procfs, "7"), 0o755))
	for name, text := range map[string]string{
		"environ": "A=1\x00AB=2\x00A=3\x00A", "cmdline": "ray::Actor step\x00\x00\x00",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(procfs, "7", name), []byte(text), 0o644))
	}
	environment, err := ReadEnvironment(procfs, 7, MaxBytes)
	require.NoError(t, err)
	require.Equal(t, []string{"1", "3"}, environment.Values("A"))
	require.Equal(t, "3", environment.Last("A"))
	require.Empty(t, environment.Last("B"))
	require.Equal(t, "ray::Actor step", CommandLine(procfs, 7, 4096))
	require.Equal(t, "ray", CommandLine(procfs, 7, 3))
	require.Equal(t, "python3 -m server", Joined([]byte("python3\x00-m\x00server\x00")))

	_, err = ReadEnvironment(procfs, 8, MaxBytes)
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = ReadInherited(procfs, 8, MaxBytes)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.Empty(t, CommandLine(procfs, 8, 4096))
}

func TestAnEnvironmentThatWasOverwrittenIsItsParents(t *testing.T) {
	procfs := t.TempDir()
	write := func(pid, parent int, cgroup, environ string) {
		dir := filepath.Join(procfs, strconv.Itoa(pid))
		require.NoError(t, os.MkdirAll(dir, 0o755))
		for name, text := range map[string]string{
			"environ": environ, "cgroup": "0::" + cgroup + "\n", "stat": fmt.Sprintf("%d (ray::A (b) c) S %d 1 1\n", pid, parent),
		} {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
		}
	}
	zeros := strings.Repeat("\x00", 64)
	write(2, 1, "/node", "JOB=of the node\x00")
	write(3, 2, "/job", "JOB=7\x00")
	write(4, 3, "/job", zeros)             // the raylet has a title, too
	write(5, 4, "/job", " of A"+zeros)     // the end of a long title
	write(6, 3, "/job", "")                // started with none
	write(7, 3, "/job", "OWN=1\x00"+zeros) // as some programs pad it
	write(8, 2, "/job", zeros)             // none of its container is left
	write(9, 10, "/job", zeros)            // a circle, which reading at different times may show
	write(10, 9, "/job", zeros)
	for pid, want := range map[uint32]string{5: "7", 6: "", 7: "", 8: "", 9: ""} {
		environment, err := ReadInherited(procfs, pid, MaxBytes)
		require.NoError(t, err, pid)
		require.Equal(t, want, environment.Last("JOB"), pid)
	}
}
