// SPDX-License-Identifier: Apache-2.0

// Package hangfs mounts a file system whose files can be opened and mapped, and whose content never comes.
package hangfs

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Ends is after how long its server ends at the latest.
const Ends = 20 * time.Second

// Mount mounts it in a directory: each name there is a file of a page. Its server ends with the test, or with the function
// that is returned, and with it what waits; after Ends in any case, as the kernel may have other processes wait, too:
// those whose memory it moves together with a page that is being read. It is another process: nothing ends one that waits for
// itself. Where FUSE cannot be mounted, the test is skipped.
func Mount(t testing.TB, dir string) (end func()) {
	t.Helper()
	end, _ = mount(t, dir)
	return end
}

// MountPart is Mount for one whose files have the content of another one, of which the bytes from up to to come with answer
// only.
func MountPart(t testing.TB, dir, file string, from, to int64) (answer, end func()) {
	t.Helper()
	end, in := mount(t, dir, "part", file, fmt.Sprint(from), fmt.Sprint(to))
	return func() {
		_, err := fmt.Fprintln(in)
		require.NoError(t, err)
	}, end
}

// MountInterrupted is Mount for one whose server answers an operation, "open", "read", "stat" or "list", with EINTR each time.
func MountInterrupted(t testing.TB, dir, operation string) (end func()) {
	t.Helper()
	end, _ = mount(t, dir, operation)
	return end
}

func mount(t testing.TB, dir string, more ...string) (end func(), in io.Writer) {
	t.Helper()
	_, here, _, _ := runtime.Caller(0)
	args := append([]string{filepath.Join(filepath.Dir(here), "server.py"), dir, fmt.Sprint(Ends.Seconds())}, more...)
	server := exec.Command("python3", args...)
	server.Stderr = os.Stderr
	stdin, err := server.StdinPipe()
	require.NoError(t, err)
	out, err := server.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, server.Start())
	end = sync.OnceFunc(func() { // also of what waits
		stdin.Close()
		_ = server.Wait()
		_ = unix.Unmount(dir, unix.MNT_FORCE|unix.MNT_DETACH)
	})
	t.Cleanup(end)
	lines := bufio.NewScanner(out)
	require.True(t, lines.Scan(), "the server of FUSE has ended")
	if line := lines.Text(); line != "mounted" {
		t.Skipf("FUSE cannot be mounted here: %s", line)
	}
	return end, stdin
}
