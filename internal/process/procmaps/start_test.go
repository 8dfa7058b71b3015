// SPDX-License-Identifier: Apache-2.0

package procmaps

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhetherAProcessHasEnded(t *testing.T) {
	procfs := t.TempDir()
	write := func(pid, state, start string, threads ...string) {
		dir := filepath.Join(procfs, pid)
		for _, tid := range threads {
			require.NoError(t, os.MkdirAll(filepath.Join(dir, "task", tid), 0o755))
		}
		text := pid + " (a) b) " + state + " 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 " + start + " 0 0\n"
		require.NoError(t, os.WriteFile(filepath.Join(dir, "stat"), []byte(text), 0o600))
	}
	write("1", "S", "100", "1")
	write("2", "Z", "100", "2")
	write("3", "Z", "100", "3", "30")
	require.NoError(t, os.Mkdir(filepath.Join(procfs, "4"), 0o755))
	for _, c := range []struct {
		pid   uint32
		start uint64
		want  bool
		why   string
	}{
		{1, 100, false, "it runs"}, {1, 0, false, "it runs"}, {1, 99, true, "another one runs"},
		{2, 100, true, "it was not waited for"}, {3, 100, false, "its main thread alone"}, {3, 99, true, "another one's"},
		{4, 100, false, "it could not be read"}, {5, 100, true, "gone"},
	} {
		require.Equal(t, c.want, HasEnded(procfs, c.pid, c.start), "%d: %s", c.pid, c.why)
	}
}
