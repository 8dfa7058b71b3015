// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"debug/elf"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/simulated/hangfs"
)

// mapsFirstPage is a program of Python that maps the first page of a file as code, and waits.
const mapsFirstPage = `
import mmap, sys
file = open(sys.argv[1], "rb")
code = mmap.mmap(file.fileno(), 4096, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_EXEC)
print("mapped", flush=True)
sys.stdin.read()`

const hangs = "it, or its file system, does not answer"

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
	pid := startCommand(t, "python3", "-c", mapsFirstPage, filepath.Join(dir, "libtracertest.so.1"))
	row, _ := rows.wait(t, "that it hangs", func(a Attachment) bool { return a.PID == pid })
	require.Equal(t, StatusUnreadable, row.Status)
	require.Contains(t, row.Error, hangs)

	h.ask("open %s", path)
	asked := time.Now()
	rows.attached(t, h.pid)
	t.Logf("another one is attached to within %v", time.Since(asked))
	require.Less(t, time.Since(asked), hangfs.Ends/4)
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

// One of which a part does not come is neither without symbols nor traced without some of its functions, and is attached to
// when it can be read.
func TestALibraryThatIsReadInPartIsReadAgain(t *testing.T) {
	k := load(t)
	path := buildLibrary(t, t.TempDir())
	f, err := elf.Open(path)
	require.NoError(t, err)
	defer f.Close()
	st, err := os.Stat(path)
	require.NoError(t, err)
	code := int64(f.Section(".text").Offset) &^ 4095
	for what, part := range map[string][2]int64{
		"symbols": {int64(f.Section(".dynamic").Offset) &^ 4095, st.Size()},
		"code":    {code, code + 4096},
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			answer, end := hangfs.MountPart(t, dir, path, part[0], part[1])
			tr, rows := start(t, Config{Programs: k.programs, ScanInterval: 100 * time.Millisecond})
			pid := startCommand(t, "python3", "-c", mapsFirstPage, filepath.Join(dir, "libtracertest.so.1"))
			row, _ := rows.wait(t, "a row", func(a Attachment) bool { return a.PID == pid })
			require.Equal(t, StatusUnreadable, row.Status, row.Error)
			require.Contains(t, row.Error, hangs)
			answer()
			row, _ = rows.attached(t, pid)
			require.Equal(t, 3, row.Symbols)
			end()
			tr.Stop()
		})
	}
}

// A server of FUSE answers each time that a request was interrupted: neither a search nor an attachment asks for ever.
func TestAServerThatAnswersEINTRIsAskedAFewTimes(t *testing.T) {
	for operation, ask := range map[string]func(*Tracer, string){
		"list": func(tr *Tracer, dir string) {
			found, _ := tr.namesOf(uint32(os.Getpid()), dir, 1000, func(string) bool { return true })
			require.Empty(t, found)
		},
		"stat": func(_ *Tracer, dir string) {
			fd, err := unix.Open(filepath.Join(dir, "libtracertest.so.1"), unix.O_RDONLY|unix.O_CLOEXEC, 0)
			require.NoError(t, err)
			f := &procmaps.File{File: os.NewFile(uintptr(fd), "libtracertest.so.1")}
			_, _, err = executable(f) // to close them would wait for the server
			require.NoError(t, err)
		},
	} {
		dir := t.TempDir()
		end := hangfs.MountInterrupted(t, dir, operation)
		tr := &Tracer{}
		tr.cfg.setDefaults()
		asked := make(chan struct{})
		go func() {
			defer close(asked)
			ask(tr, dir)
		}()
		select {
		case <-asked:
		case <-time.After(5 * time.Second):
			t.Errorf("%s: it asks for ever", operation)
			end()
			<-asked
		}
	}
}

// What is attached to is open until then, and no longer.
func TestAnExecutableIsOpenUntilItIsAttachedTo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "libtracertest.so.1")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	f, err := procmaps.NewFile(os.Open(path))
	require.NoError(t, err)
	defer f.Close()
	open := func() (n int) {
		all, err := filepath.Glob("/proc/self/fd/*")
		require.NoError(t, err)
		for _, fd := range all {
			if to, err := os.Readlink(fd); err == nil && to == path {
				n++
			}
		}
		return n
	}
	require.Equal(t, 1, open())
	_, done, err := executable(f)
	require.NoError(t, err)
	require.Equal(t, 2, open())
	done()
	require.Equal(t, 1, open())
}
