// SPDX-License-Identifier: Apache-2.0

package file

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// node makes a device as root of a container can in a volume, one that no machine has.
func node(t *testing.T, path string, kind uint32) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("devices need root")
	}
	require.NoError(t, unix.Mknod(path, kind|0o666, int(unix.Mkdev(240, 1<<20-1))))
}

func TestDevicesOfAContainerAreNotOpened(t *testing.T) {
	for name, put := range both {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			disk, other := filepath.Join(dir, "disk"), filepath.Join(dir, "null")
			node(t, disk, unix.S_IFBLK)
			require.ErrorContains(t, put(disk, "x"), disk+" is a block device")
			node(t, other, unix.S_IFCHR)
			require.ErrorContains(t, put(other, "x"), other+" is a device; only /dev/null")
			require.Equal(t, 2, entries(t, dir))
		})
	}
}

func TestOnlyDevicesThatKeepNothingAreOpened(t *testing.T) {
	for device, want := range map[[2]uint32]bool{
		{1, 3}: true, {1, 7}: true, {5, 0}: true, {136, 0}: true, {143, 255}: true,
		{1, 1}: false, {1, 11}: false, {5, 1}: false, {5, 2}: false, {4, 64}: false, {10, 130}: false, {195, 0}: false, {144, 0}: false, {135, 0}: false,
	} {
		require.Equal(t, want, isHarmless(unix.Mkdev(device[0], device[1])), device)
	}
}

// TestAFullDeviceRefusesWhatIsWritten: it is opened, and its error reported.
func TestAFullDeviceRefusesWhatIsWritten(t *testing.T) {
	for name, put := range both {
		t.Run(name, func(t *testing.T) { require.ErrorIs(t, put("/dev/full", "x"), unix.ENOSPC) })
	}
}

func pipe(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, unix.Mkfifo(path, 0o600))
	return path
}

func TestAPipeWithoutAReaderIsAnError(t *testing.T) {
	path := pipe(t)
	_, err := openDevice(path, 50*time.Millisecond)
	require.EqualError(t, err, path+" is a pipe that no process reads")
}

// TestAReaderMayComeLater, within readerWait.
func TestAReaderMayComeLater(t *testing.T) {
	for name, put := range both {
		t.Run(name, func(t *testing.T) {
			path := pipe(t)
			got := make(chan string)
			go func() {
				time.Sleep(200 * time.Millisecond)
				text, err := os.ReadFile(path)
				got <- fmt.Sprint(string(text), err)
			}()
			require.NoError(t, put(path, "rows"))
			require.Equal(t, "rows<nil>", <-got)
		})
	}
}

// TestAPipeOfTheShellIsWritten: bash gives `>(cat)` as /dev/fd/63.
func TestAPipeOfTheShellIsWritten(t *testing.T) {
	for name, put := range both {
		t.Run(name, func(t *testing.T) {
			r, w, err := os.Pipe()
			require.NoError(t, err)
			defer func() { _ = r.Close() }()
			number := w.Fd()
			require.NoError(t, put(fmt.Sprintf("/dev/fd/%d", number), "rows"))
			require.NoError(t, w.Close())
			text, err := io.ReadAll(r)
			require.NoError(t, err)
			require.Equal(t, "rows", string(text))
		})
	}
}

// TestWriteNeverWaits for a reader: it is for files whose names the user did not give.
func TestWriteNeverWaits(t *testing.T) {
	path := pipe(t)
	began := time.Now()
	require.EqualError(t, Write(path, write("x")), path+" is a pipe")
	require.ErrorContains(t, Write("/dev/null", write("x")), "/dev/null is a device")
	require.Less(t, time.Since(began), readerWait/2)

	plain := filepath.Join(t.TempDir(), "rows")
	for _, text := range []string{"first", "second"} {
		require.NoError(t, Write(plain, write(text)))
		require.Equal(t, text, read(t, plain))
	}
	link := plain + ".link"
	require.NoError(t, os.Symlink(plain, link))
	require.ErrorContains(t, Write(link, write("x")), "is a symbolic link, and none is followed")
	require.ErrorContains(t, Write(filepath.Dir(plain), write("x")), "is a directory")
	require.ErrorIs(t, Write("missing/rows", write("x")), os.ErrNotExist)
}

// TestTheRootOfAProcessIsItsOwn: in a mount namespace of its own, the text of the link is "/".
func TestTheRootOfAProcessIsItsOwn(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("a mount namespace needs root")
	}
	// A file system that only this process has at this place: the text of the link is that of another directory here.
	dir := t.TempDir()
	cmd := exec.Command("sh", "-c", `mount -t tmpfs none "$0" && mkdir "$0/out" && ln -s /out "$0/absolute" && ln -s out "$0/relative" && echo ready && read -r line`, dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	from, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
	line := make([]byte, 6)
	_, err = io.ReadFull(from, line)
	require.NoError(t, err)
	inside := filepath.Join("/proc", strconv.Itoa(cmd.Process.Pid), "root", dir)
	for name, put := range both {
		t.Run(name, func(t *testing.T) {
			for _, sub := range []string{"", "out", "relative"} {
				path := filepath.Join(inside, sub, "rows"+sub)
				require.NoError(t, put(path, "x"))
				require.Equal(t, "x", read(t, path))
			}
			require.Zero(t, entries(t, dir), "of this namespace")
			require.ErrorContains(t, put(filepath.Join(inside, "absolute", "rows"), "x"), "absolute is a symbolic link to /out, which is not followed behind a link of /proc")
		})
	}
}
