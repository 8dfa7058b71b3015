// SPDX-License-Identifier: Apache-2.0

package file

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// other is a user who is neither root nor us.
const other = 12345

func write(text string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, text)
		return err
	}
}

// both writes a file in either way.
var both = map[string]func(path, text string) error{
	"at once": func(path, text string) error {
		o, err := Prepare(path)
		if err != nil {
			return err
		}
		return o.Commit(write(text))
	},
	"bit by bit": func(path, text string) error {
		f, err := Create(path)
		if err != nil {
			return err
		}
		return errors.Join(write(text)(f), f.Close())
	},
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}

// entries is how many files a directory has.
func entries(t *testing.T, dir string) int {
	t.Helper()
	all, err := os.ReadDir(dir)
	require.NoError(t, err)
	return len(all)
}

func TestDeviceIsWrittenAndNotReplaced(t *testing.T) {
	for name, put := range both {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, put("/dev/null", "x"))
			info, err := os.Stat("/dev/null")
			require.NoError(t, err)
			require.NotZero(t, info.Mode()&os.ModeCharDevice)
		})
	}
}

func TestNothingIsLeftOfAFileThatWasNotFinished(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "p.pb.gz")
	o, err := Prepare(path)
	require.NoError(t, err)
	full := errors.New("no space left on device")
	require.Zero(t, entries(t, dir), "the process may be killed from here on")
	require.ErrorIs(t, o.Commit(func(io.Writer) error { return full }), full)
	require.Zero(t, entries(t, dir))
}

func TestOnlyItsOwnerReadsAFile(t *testing.T) {
	for name, put := range both {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "rows")
			// An older file that all may read, or that a reader has open.
			require.NoError(t, os.WriteFile(path, []byte("old"), 0o666))
			reader, err := os.Open(path)
			require.NoError(t, err)
			defer func() { _ = reader.Close() }()
			require.NoError(t, put(path, "new"))
			info, err := os.Stat(path)
			require.NoError(t, err)
			require.Equal(t, os.FileMode(0o600), info.Mode())
			require.Equal(t, "new", read(t, path))
			seen, err := io.ReadAll(reader)
			require.NoError(t, err)
			require.Equal(t, "old", string(seen))
			require.Equal(t, 1, entries(t, dir))
		})
	}
}

func TestLinksAreNotFollowed(t *testing.T) {
	for name, put := range both {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			precious, link, hard := filepath.Join(dir, "precious"), filepath.Join(dir, "link"), filepath.Join(dir, "hard")
			require.NoError(t, os.WriteFile(precious, []byte("precious"), 0o600))
			require.NoError(t, os.Symlink(precious, link))
			require.NoError(t, os.Link(precious, hard))
			require.ErrorContains(t, put(link, "x"), "is a symbolic link, and none is followed for a file that is written: give "+precious)
			require.NoError(t, put(hard, "x"))
			require.Equal(t, "precious", read(t, precious))

			require.NoError(t, os.Remove(link))
			require.NoError(t, os.Symlink(filepath.Join(dir, "missing"), link))
			require.ErrorContains(t, put(link, "x"), "leads nowhere")
			require.Equal(t, 3, entries(t, dir))
		})
	}
}

// Everyone may make links in /dev/shm.
func TestLinksBelowDevAreNotFollowed(t *testing.T) {
	for name, put := range both {
		t.Run(name, func(t *testing.T) {
			dir, err := os.MkdirTemp("/dev/shm", "links")
			require.NoError(t, err)
			t.Cleanup(func() { _ = os.RemoveAll(dir) })
			precious := filepath.Join(t.TempDir(), "precious")
			require.NoError(t, os.WriteFile(precious, []byte("precious"), 0o600))
			for _, link := range []string{filepath.Join(dir, "rows"), filepath.Join(dir, "1")} {
				require.NoError(t, os.Symlink(precious, link))
				require.ErrorContains(t, put(link, "x"), "is a symbolic link, and none is followed")
				if os.Geteuid() == 0 {
					require.NoError(t, os.Lchown(link, other, other))
					require.ErrorContains(t, put(link, "x"), "is a symbolic link, and none is followed")
				}
			}
			require.Equal(t, "precious", read(t, precious))
		})
	}
}

func TestNamesOfOpenFilesAreFollowed(t *testing.T) {
	for name, put := range both {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "rows")
			require.NoError(t, os.WriteFile(path, []byte("old "), 0o600))
			f, err := os.OpenFile(path, os.O_RDWR, 0)
			require.NoError(t, err)
			defer func() { _ = f.Close() }()
			for _, dir := range []string{"/dev/fd", "/proc/self/fd"} {
				require.NoError(t, put(filepath.Join(dir, strconv.Itoa(int(f.Fd()))), "new "))
			}
			require.Equal(t, "old new new ", read(t, path))
		})
	}
}

func TestOtherUsersDoNotChooseTheDirectory(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("files of another user need root")
	}
	for name, put := range both {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			inside, link := filepath.Join(dir, "inside"), filepath.Join(dir, "link")
			require.NoError(t, os.Mkdir(inside, 0o700))
			require.NoError(t, os.Symlink("inside", link))
			require.NoError(t, put(filepath.Join(link, "ours"), "x"), "a link of our own")
			require.NoError(t, os.Lchown(link, other, other))
			require.ErrorContains(t, put(filepath.Join(link, "theirs"), "x"), "the directory link is a symbolic link of another user (12345)")
			require.Equal(t, 1, entries(t, inside))

			pipe := filepath.Join(dir, "pipe")
			require.NoError(t, syscall.Mkfifo(pipe, 0o666))
			require.NoError(t, os.Chown(pipe, other, other))
			require.ErrorContains(t, put(pipe, "x"), "is no file, and belongs to another user (12345)")

			loop := filepath.Join(dir, "loop")
			require.NoError(t, os.Symlink("loop", loop))
			require.ErrorIs(t, put(filepath.Join(loop, "x"), "x"), syscall.ELOOP)
		})
	}
}

func TestWhoUsedSudoOwnsTheFile(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("files of another user need root")
	}
	t.Setenv("SUDO_UID", "12345")
	t.Setenv("SUDO_GID", "23456")
	for name, put := range both {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "rows")
			require.NoError(t, put(path, "x"))
			info, err := os.Stat(path)
			require.NoError(t, err)
			stat := info.Sys().(*syscall.Stat_t)
			require.Equal(t, []uint32{12345, 23456}, []uint32{stat.Uid, stat.Gid})
		})
	}
}

func TestErrorsNameThePath(t *testing.T) {
	for name, put := range both {
		t.Run(name, func(t *testing.T) {
			missing := filepath.Join(t.TempDir(), "missing", "rows")
			require.EqualError(t, put(missing, "x"), "create "+missing+": no such file or directory")
			require.ErrorContains(t, put(t.TempDir(), "x"), "is a directory")
			require.ErrorContains(t, put("rows/", "x"), "is no name of a file")
		})
	}
}
