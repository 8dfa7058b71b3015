// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/stretchr/testify/require"
)

// eachMode runs a test with both ways of attaching.
func eachMode(t *testing.T, f func(*testing.T, Mode)) {
	for _, mode := range []Mode{Multi, Perf} {
		t.Run(string(mode), func(t *testing.T) { f(t, mode) })
	}
}

func TestALibraryThatIsAlreadyMapped(t *testing.T) {
	eachMode(t, func(t *testing.T, mode Mode) {
		k := load(t)
		h := startHost(t)
		path := buildLibrary(t, t.TempDir())
		h.ask("open %s", path)
		tr, rows := start(t, Config{Programs: k.programs, Mode: mode})
		row, _ := rows.attached(t, h.pid)
		require.Equal(t, path, row.Path)
		require.Equal(t, mode, row.Mode)
		require.Equal(t, 3, row.Symbols, "gpuAbsent is not there")
		require.Equal(t, 4, row.Wanted)
		require.Contains(t, row.Note, "aliases: 1")
		require.Equal(t, "host", row.Comm)
		require.Len(t, row.BuildID, 40)

		h.ask("call gpuAlloc 7")
		h.ask("call gpuFree 5")
		h.ask("call gpuFreeAlias 1")
		enters, exits := k.calls(t, 1)
		require.Equal(t, [2]int{7, 7}, [2]int{enters, exits})
		enters, exits = k.calls(t, 2)
		require.Equal(t, [2]int{6, 0}, [2]int{enters, exits}, "an alias is probed once, as the first name")

		h.stop()
		rows.wait(t, "gone", func(a Attachment) bool { return a.PID == h.pid && a.Status == StatusGone })
		tr.Stop()
		require.Zero(t, tr.Stats().Attached)
	})
}

func TestAPointMayHaveAProgramOfItsOwn(t *testing.T) {
	k := load(t)
	h := startHost(t)
	h.ask("open %s", buildLibrary(t, t.TempDir()))
	programs := Programs{
		EnterPoint: map[uint32]*ebpf.Program{1: k.programs.Enter}, // none for the others
		Exit:       k.programs.Exit,
	}
	var prepared atomic.Uint32
	_, rows := start(t, Config{Programs: programs, Prepare: func(pid uint32) { prepared.Store(pid) }})
	row, _ := rows.attached(t, h.pid)
	require.Equal(t, Perf, row.Mode)
	require.Equal(t, 2, row.Symbols, "gpuAlloc, and gpuFreeAlias at the address of gpuFree")
	require.Contains(t, row.Note, "refused: [gpuFree]")
	require.Equal(t, h.pid, prepared.Load())
	h.ask("call gpuAlloc 7")
	enters, exits := k.calls(t, 0)
	require.Equal(t, [2]int{7, 7}, [2]int{enters, exits}, "there are no cookies")
}

func TestDlopenAfterStart(t *testing.T) {
	eachMode(t, func(t *testing.T, mode Mode) {
		k := load(t)
		h := startHost(t)
		// A scan would come too late to be of help.
		_, rows := start(t, Config{Programs: k.programs, Mode: mode, ScanInterval: time.Hour})
		time.Sleep(200 * time.Millisecond)
		opened := h.ask("open %s", buildLibrary(t, t.TempDir()))
		_, at := rows.attached(t, h.pid)
		t.Logf("attached %v after dlopen returned", time.Duration(int64(at)-opened))
		h.ask("call gpuAlloc 3")
		enters, exits := k.calls(t, 1)
		require.Equal(t, [2]int{3, 3}, [2]int{enters, exits})
	})
}

func TestAProcessThatStartsLaterIsTracedFromItsFirstCall(t *testing.T) {
	k := load(t)
	path := buildLibrary(t, t.TempDir())
	first := startHost(t)
	first.ask("open %s", path)
	_, rows := start(t, Config{Programs: k.programs})
	rows.attached(t, first.pid)
	later := startHost(t)
	later.ask("open %s", path)
	later.ask("call gpuAlloc 1000")
	enters, exits := k.calls(t, 1)
	require.Equal(t, [2]int{1000, 1000}, [2]int{enters, exits})
	rows.attached(t, later.pid)
}

func TestNothingIsLostOfALibraryOnThePath(t *testing.T) {
	k := load(t)
	dir := t.TempDir()
	path := buildLibrary(t, dir)
	tr, rows := start(t, Config{Programs: k.programs})
	h := startHost(t, "LD_LIBRARY_PATH=/nowhere:"+dir)
	require.Eventually(t, func() bool { return tr.Stats().Files == 1 }, 30*time.Second, time.Millisecond,
		"LD_LIBRARY_PATH is searched at exec")
	h.ask("open %s", path)
	h.ask("call gpuAlloc 100")
	enters, _ := k.calls(t, 1)
	require.Equal(t, 100, enters)
	rows.attached(t, h.pid)
}

func TestALibraryInAWheelIsExpected(t *testing.T) {
	k := load(t)
	site := filepath.Join(t.TempDir(), "venv/lib/python3.11/site-packages")
	lib := buildLibrary(t, site+"/nvidia/gputest/lib")
	module := site + "/torch/_C.so"
	require.NoError(t, os.MkdirAll(filepath.Dir(module), 0o755))
	run(t, "gcc", "-shared", "-o", module, "-x", "c", "/dev/null")
	tr, rows := start(t, Config{Programs: k.programs})
	h := startHost(t)
	h.ask("open %s", module)
	require.Eventually(t, func() bool { return tr.Stats().Files == 1 }, 30*time.Second, time.Millisecond)
	require.Zero(t, tr.Stats().Attached, "on disk, but not mapped yet")
	h.ask("open %s", lib)
	h.ask("call gpuAlloc 100")
	enters, _ := k.calls(t, 1)
	require.Equal(t, 100, enters)
	rows.attached(t, h.pid)
}

func TestADeletedAndReplacedLibrary(t *testing.T) {
	eachMode(t, func(t *testing.T, mode Mode) {
		k := load(t)
		path := buildLibrary(t, t.TempDir())
		old := startHost(t)
		old.ask("open %s", path)
		require.NoError(t, os.Remove(path))
		buildLibrary(t, filepath.Dir(path))
		young := startHost(t)
		young.ask("open %s", path)

		_, rows := start(t, Config{Programs: k.programs, Mode: mode})
		rows.attached(t, old.pid)
		rows.attached(t, young.pid)
		old.ask("call gpuAlloc 2")
		young.ask("call gpuAlloc 3")
		enters, _ := k.calls(t, 1)
		require.Equal(t, 5, enters)
	})
}

func TestALibraryThatWasOverwritten(t *testing.T) {
	k := load(t)
	dir := t.TempDir()
	path := buildLibrary(t, dir)
	tr, rows := start(t, Config{Programs: k.programs, ScanInterval: 50 * time.Millisecond})
	h := startHost(t)
	h.ask("open %s", path)
	first, _ := rows.attached(t, h.pid)
	h.stop()

	// Another library, with other offsets, in the same inode.
	source := filepath.Join(t.TempDir(), "lib.c")
	require.NoError(t, os.WriteFile(source, []byte(`
int before(int a) { return a * a + 42; }
int gpuAlloc(void *p, unsigned long n) { return before((int)n); }`), 0o644))
	run(t, "gcc", "-O0", "-shared", "-fPIC", "-o", path+".new", source)
	b, err := os.ReadFile(path + ".new")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, b, 0o644))
	require.Eventually(t, func() bool { return tr.Stats().Files == 0 }, 30*time.Second, time.Millisecond)
	time.Sleep(time.Second) // the kernel waits for running programs
	h = startHost(t)
	h.ask("open %s", path)
	row, _ := rows.attached(t, h.pid)
	require.NotEqual(t, first.BuildID, row.BuildID)
	h.ask("call gpuAlloc 5")
	enters, exits := k.calls(t, 1)
	require.Equal(t, [2]int{5, 5}, [2]int{enters, exits})
}

func TestAForkedWorkerGetsItsRow(t *testing.T) {
	k := load(t)
	h := startHost(t)
	h.ask("open %s", buildLibrary(t, t.TempDir()))
	_, rows := start(t, Config{Programs: k.programs, ScanInterval: 50 * time.Millisecond})
	rows.attached(t, h.pid)
	child := uint32(h.ask("fork"))
	h.ask("call gpuAlloc 9")
	enters, exits := k.calls(t, 1)
	require.Equal(t, [2]int{9, 9}, [2]int{enters, exits})
	rows.attached(t, child)
}

func TestUnmappedLibraryIsGone(t *testing.T) {
	k := load(t)
	h := startHost(t)
	path := buildLibrary(t, t.TempDir())
	h.ask("open %s", path)
	tr, rows := start(t, Config{Programs: k.programs})
	rows.attached(t, h.pid)
	h.ask("close")
	other := buildLibrary(t, t.TempDir())
	h.ask("open %s", other) // a mapping makes the tracer look again
	rows.wait(t, "gone", func(a Attachment) bool { return a.Status == StatusGone && a.Path == path })
	require.Eventually(t, func() bool { return tr.Stats().Attached == 1 }, 30*time.Second, 10*time.Millisecond)
}

func TestNotALibrary(t *testing.T) {
	k := load(t)
	dir := t.TempDir()
	// A program that maps any file as code.
	source, mapper := filepath.Join(dir, "m.c"), filepath.Join(dir, "mapper")
	require.NoError(t, os.WriteFile(source, []byte(`
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
int main(int c, char **v) {
	for (int i = 1; i < c; i++) mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, open(v[i], O_RDONLY), 0);
	puts("1"); fflush(stdout); getchar(); }`), 0o644))
	run(t, "gcc", "-o", mapper, source)
	text, empty := filepath.Join(dir, "libtracertest.so"), filepath.Join(dir, "libtracertest.so.2")
	require.NoError(t, os.WriteFile(text, []byte("#!/bin/sh\nnot a library, but named like one; long enough for a header\n"), 0o644))
	run(t, "gcc", "-shared", "-o", empty, "-x", "c", "/dev/null")
	_, rows := start(t, Config{Programs: k.programs})
	cmd := startCommand(t, mapper, text, empty)
	row, _ := rows.wait(t, "not ELF", func(a Attachment) bool { return a.Path == text && a.PID == cmd })
	require.Equal(t, StatusNotELF, row.Status)
	row, _ = rows.wait(t, "no symbols", func(a Attachment) bool { return a.Path == empty && a.PID == cmd })
	require.Equal(t, StatusNoSymbols, row.Status)
}
