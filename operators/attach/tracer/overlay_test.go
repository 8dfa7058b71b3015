// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

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
			return filepath.Join(merged, "libgputest.so.1")
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
