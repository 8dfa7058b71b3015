// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// held is what runs in a container before the container's own program: it changes the
// root directory, and waits.
const held = `
import os, sys
print("started", flush=True); sys.stdin.readline()
os.chroot(sys.argv[1])
print("held", flush=True); sys.stdin.readline()
`

// TestAContainerIsProbedWhileItIsHeld: nothing tells that the process has another root
// directory now, and the library is only in there.
func TestAContainerIsProbedWhileItIsHeld(t *testing.T) {
	eachMode(t, func(t *testing.T, mode Mode) {
		k := load(t)
		root := t.TempDir()
		require.NoError(t, unix.Mount("tmpfs", root, "tmpfs", 0, "size=1m"))
		t.Cleanup(func() { _ = unix.Unmount(root, unix.MNT_DETACH) })
		buildLibrary(t, filepath.Join(root, "usr/lib"))
		require.NoError(t, os.Rename(filepath.Join(root, "usr/lib/libgputest.so.1"), filepath.Join(root, "usr/lib/libgputest.so")))

		tr, _ := start(t, Config{Programs: k.programs, Mode: mode, ScanInterval: time.Hour})
		cmd := exec.Command("python3", "-c", held, root)
		in, err := cmd.StdinPipe()
		require.NoError(t, err)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		t.Cleanup(func() { in.Close(); _ = cmd.Wait() })
		says := bufio.NewReader(out)
		expect := func(word string) {
			t.Helper()
			line, err := says.ReadString('\n')
			require.NoError(t, err)
			require.Equal(t, word+"\n", line)
		}
		expect("started")
		pid := uint32(cmd.Process.Pid)
		tr.Expect(pid) // as somebody who looked too early
		before := tr.Stats().Files
		_, err = in.Write([]byte("\n"))
		require.NoError(t, err)
		expect("held")
		tr.Expect(pid)
		require.Equal(t, before+1, tr.Stats().Files)
	})
}
