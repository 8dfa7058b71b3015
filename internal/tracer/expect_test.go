// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// held is the program that runs in a container before the container's own: it changes the
// root directory, and waits.
const held = `
import os, sys
print("started", flush=True); sys.stdin.readline()
os.chroot(sys.argv[1])
print("held", flush=True); sys.stdin.readline()
`

// image mounts a file system with the library, as a container's image has it.
func image(t *testing.T) (root string) {
	t.Helper()
	root = t.TempDir()
	require.NoError(t, unix.Mount("tmpfs", root, "tmpfs", 0, "size=4m"))
	t.Cleanup(func() { _ = unix.Unmount(root, unix.MNT_DETACH) })
	buildLibrary(t, filepath.Join(root, "usr/lib"))
	require.NoError(t, os.Rename(filepath.Join(root, "usr/lib/libtracertest.so.1"), filepath.Join(root, "usr/lib/libtracertest.so")))
	return root
}

// containerOf mounts the root directory of a container of an image.
func containerOf(t *testing.T, image string) (root string) {
	t.Helper()
	root, above := t.TempDir(), t.TempDir()
	require.NoError(t, unix.Mount("tmpfs", above, "tmpfs", 0, "size=4m"))
	t.Cleanup(func() { _ = unix.Unmount(above, unix.MNT_DETACH) })
	for _, d := range []string{"upper", "work"} {
		require.NoError(t, os.Mkdir(filepath.Join(above, d), 0o755))
	}
	err := unix.Mount("overlay", root, "overlay", 0, "lowerdir="+image+",upperdir="+above+"/upper,workdir="+above+"/work")
	if errors.Is(err, unix.ENODEV) {
		t.Skip("the kernel has no overlayfs: mount said ENODEV")
	}
	require.NoError(t, err)
	t.Cleanup(func() { _ = unix.Unmount(root, unix.MNT_DETACH) })
	return root
}

// TestAContainerIsProbedWhileItIsHeld: nothing reports that the process has another root
// directory now, and the library is only in there.
func TestAContainerIsProbedWhileItIsHeld(t *testing.T) {
	for name, root := range map[string]func(t *testing.T) string{
		"directory": image,
		"overlay":   func(t *testing.T) string { return containerOf(t, image(t)) },
	} {
		t.Run(name, func(t *testing.T) { heldIn(t, root) })
	}
}

func heldIn(t *testing.T, mount func(t *testing.T) string) {
	eachMode(t, func(t *testing.T, mode Mode) {
		k := load(t)
		root := mount(t)
		tr, rows := start(t, Config{Programs: k.programs, Mode: mode, ScanInterval: time.Hour})
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
		tr.Expect(pid) // as a caller would that is too early
		before := tr.Stats().Files
		_, err = in.Write([]byte("\n"))
		require.NoError(t, err)
		expect("held")
		tr.Expect(pid)
		require.Equal(t, before+1, tr.Stats().Files)

		// The same file when it is mapped.
		host := startHost(t)
		host.ask("open %s", filepath.Join(root, "usr/lib/libtracertest.so"))
		rows.attached(t, host.pid)
		require.Equal(t, before+1, tr.Stats().Files)
		host.ask("call gpuAlloc 3")
		enters, exits := k.calls(t, 1)
		require.Equal(t, [2]int{3, 3}, [2]int{enters, exits})
	})
}
