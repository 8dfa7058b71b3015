// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/simulated/hangfs"
)

// A process has mapped a library of a file system whose server opens files and then does not answer any more. Others
// are attached to, and so would it be if the server answered.
func TestALibraryThatCannotBeReadDelaysNoOther(t *testing.T) {
	k := load(t)
	h := startHost(t)
	path := buildLibrary(t, t.TempDir())
	dir := t.TempDir()
	end := hangfs.Mount(t, dir)
	tr, rows := start(t, Config{Programs: k.programs, ScanInterval: 100 * time.Millisecond})
	began := time.Now()
	pid := startCommand(t, "python3", "-c", `
import mmap, sys
file = open(sys.argv[1], "rb")
code = mmap.mmap(file.fileno(), 4096, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_EXEC)
print("mapped", flush=True)
sys.stdin.read()`, filepath.Join(dir, "libtracertest.so.1"))
	const hangs = "it, or its file system, does not answer"
	row, _ := rows.wait(t, "that it hangs", func(a Attachment) bool { return a.PID == pid })
	require.Equal(t, StatusUnreadable, row.Status)
	require.Contains(t, row.Error, hangs)

	h.ask("open %s", path)
	asked := time.Now()
	rows.attached(t, h.pid)
	t.Logf("another one is attached to within %v", time.Since(asked))
	require.Less(t, time.Since(asked), 2*time.Second)
	read := tr.Stats().MapsRead
	require.Eventually(t, func() bool { return tr.Stats().MapsRead > read }, 30*time.Second, 10*time.Millisecond,
		"it is tried again")

	end()
	require.Less(t, time.Since(began), hangfs.Ends/2, "Go's poller has not waited for the server")
	row, _ = rows.wait(t, "another error", func(a Attachment) bool { return a.PID == pid && !strings.Contains(a.Error, hangs) })
	require.Equal(t, StatusUnreadable, row.Status)
	require.NotEmpty(t, row.Error)
	tr.Stop()
}
