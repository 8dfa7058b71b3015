// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestTwoContainersOfOneImageAreProbedOnce: their libraries are different files
// of two overlay file systems, but one file below, where the probe sits.
func TestTwoContainersOfOneImageAreProbedOnce(t *testing.T) {
	eachMode(t, func(t *testing.T, mode Mode) {
		k := load(t)
		dir := t.TempDir()
		lower := filepath.Join(dir, "lower")
		buildLibrary(t, lower)
		container := func(name string) string {
			for _, d := range []string{"upper", "work", "merged"} {
				require.NoError(t, os.MkdirAll(filepath.Join(dir, name, d), 0o755))
			}
			merged := filepath.Join(dir, name, "merged")
			err := unix.Mount("overlay", merged, "overlay", 0, "lowerdir="+lower+
				",upperdir="+filepath.Join(dir, name, "upper")+",workdir="+filepath.Join(dir, name, "work"))
			if errors.Is(err, unix.ENODEV) {
				t.Skip("the kernel has no overlayfs: mount said ENODEV")
			}
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, unix.Unmount(merged, unix.MNT_DETACH)) })
			return filepath.Join(merged, "libtracertest.so.1")
		}
		one, two := startHost(t), startHost(t)
		one.ask("open %s", container("one"))
		two.ask("open %s", container("two"))
		tr, rows := start(t, Config{Programs: k.programs, Mode: mode})
		rows.attached(t, one.pid)
		rows.attached(t, two.pid)
		one.ask("call gpuAlloc 4")
		two.ask("call gpuAlloc 3")
		enters, exits := k.calls(t, 1)
		require.Equal(t, [2]int{7, 7}, [2]int{enters, exits})
		require.Equal(t, 1, tr.Stats().Files)
	})
}

// TestAContainerThatIsGoneIsLetGo: a probe keeps a file system busy, so none is
// kept in a root directory without processes; files that a process can map
// again stay probed.
func TestAContainerThatIsGoneIsLetGo(t *testing.T) {
	k := load(t)
	shm, err := os.MkdirTemp("/dev/shm", "tracer-test")
	if err != nil {
		t.Skip("needs a second file system: ", err)
	}
	t.Cleanup(func() { os.RemoveAll(shm) })
	root := t.TempDir()
	if err := unix.Mount("overlay", root, "overlay", 0, "lowerdir="+shm+":/"); err != nil {
		t.Skip("cannot mount an overlay of /: ", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(root, unix.MNT_DETACH) })

	tr, rows := start(t, Config{Programs: k.programs, ScanInterval: 50 * time.Millisecond})
	outside := startHost(t)
	outside.ask("open %s", buildLibrary(t, t.TempDir()))
	rows.attached(t, outside.pid)

	path := buildLibrary(t, t.TempDir())
	inside := startHost(t, "CHROOT="+root)
	inside.ask("open %s", path)
	row, _ := rows.attached(t, inside.pid)
	require.Equal(t, root+path, row.Path, "a chroot is not another mount namespace")
	inside.ask("call gpuAlloc 2")
	enters, _ := k.calls(t, 1)
	require.Equal(t, 2, enters)
	require.Equal(t, 2, tr.Stats().Files)

	inside.stop()
	outside.stop()
	require.Eventually(t, func() bool { return tr.Stats().Files == 1 }, 30*time.Second, 10*time.Millisecond)
	require.Eventually(t, func() bool { return unix.Unmount(root, 0) == nil }, 30*time.Second, 10*time.Millisecond, "busy")
	require.Equal(t, 1, tr.Stats().Files, "the host's own library stays ready")
}
