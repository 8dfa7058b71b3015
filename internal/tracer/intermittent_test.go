// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"bytes"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// spoilers make a library one that cannot be probed while a process has it mapped.
var spoilers = map[string]func(t *testing.T, path string){
	"truncated": func(t *testing.T, path string) { require.NoError(t, os.Truncate(path, 0)) },
	// As before, as far as its size and time say; a breakpoint is not probed.
	"other instructions": func(t *testing.T, path string) {
		info, err := os.Stat(path)
		require.NoError(t, err)
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		require.NoError(t, err)
		_, err = f.Write(bytes.Repeat([]byte{0xcc}, int(info.Size())))
		require.NoError(t, err)
		require.NoError(t, f.Close())
		require.NoError(t, os.Chtimes(path, time.Time{}, info.ModTime()))
	},
}

// Files of all containers are probed in the same windows: what one does to its own file must not
// keep others from being followed.
func TestAFileThatCannotBeProbedIsLeftOut(t *testing.T) {
	for name, spoil := range spoilers {
		t.Run(name, func(t *testing.T) {
			k := load(t)
			good, bad := startHost(t), startHost(t)
			spoiled := buildLibrary(t, t.TempDir())
			good.ask("open %s", buildLibrary(t, t.TempDir()))
			bad.ask("open %s", spoiled)
			warnings := make(chan string, 10)
			// No scan detaches from the file meanwhile.
			tr, rows := start(t, Config{Programs: k.programs, Mode: Multi, ScanInterval: time.Hour,
				Warn: func(text string) { warnings <- text }})
			rows.attached(t, good.pid)
			rows.attached(t, bad.pid)
			for len(warnings) > 0 {
				<-warnings
			}
			require.NoError(t, tr.SetIntermittent([]uint32{1}))
			waitUnprobed(t, k, good)
			spoil(t, spoiled)
			for range 3 {
				window, err := tr.Resume(nil)
				require.NoError(t, err)
				require.Equal(t, 1, called(t, k, good), "in a window")
				require.NoError(t, window.Close())
				require.Equal(t, 0, called(t, k, good))
			}
			require.NoError(t, tr.SetIntermittent(nil))
			require.Equal(t, 1, called(t, k, good), "all of the time")
			require.NoError(t, tr.SetIntermittent([]uint32{1, 2}))
			waitUnprobed(t, k, good)
			if name == "truncated" {
				require.Empty(t, warnings, "the next scan finds it")
			} else {
				require.Contains(t, <-warnings, "libtracertest")
				require.Empty(t, warnings, "once")
			}

			good.stop()
			bad.stop()
		})
	}
}

// A file that could not be probed at one time is probed again once it can be.
func TestAFileThatCanBeProbedAgainIs(t *testing.T) {
	k := load(t)
	h := startHost(t)
	path := buildLibrary(t, t.TempDir())
	h.ask("open %s", path)
	warnings := make(chan string, 10)
	tr, rows := start(t, Config{Programs: k.programs, Mode: Multi, ScanInterval: time.Hour, Warn: func(text string) { warnings <- text }})
	rows.attached(t, h.pid)
	scan := func() {
		tr.mu.Lock()
		defer tr.mu.Unlock()
		tr.scan()
	}
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	info, err := os.Stat(path)
	require.NoError(t, err)
	for range 2 {
		require.NoError(t, tr.SetIntermittent([]uint32{1}))
		waitUnprobed(t, k, h)
		for len(warnings) > 0 {
			<-warnings
		}
		spoilers["other instructions"](t, path)
		require.NoError(t, tr.SetIntermittent(nil))
		scan()
		require.Contains(t, <-warnings, "libtracertest")
		require.Empty(t, warnings, "once")

		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		require.NoError(t, err)
		_, err = f.Write(whole)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		require.NoError(t, os.Chtimes(path, time.Time{}, info.ModTime()))
		h = startHost(t) // the former has pages of its own with the other instructions
		h.ask("open %s", path)
		require.Zero(t, called(t, k, h))
		scan()
		require.Equal(t, 1, called(t, k, h))
	}
	h.stop()
}

// called calls a function once and returns how often a program saw that.
func called(t *testing.T, k *kernel, h *host) int {
	t.Helper()
	before, _ := k.calls(t, 1)
	h.ask("call gpuAlloc 1")
	after, _ := k.calls(t, 1)
	return after - before
}

// waitUnprobed waits until the function is not probed: that is in the background while others are.
func waitUnprobed(t *testing.T, k *kernel, h *host) {
	t.Helper()
	require.Eventually(t, func() bool { return called(t, k, h) == 0 }, 10*time.Second, 10*time.Millisecond)
	time.Sleep(300 * time.Millisecond) // entries go first
}

func TestWindowsWithoutAnyFileAreAnError(t *testing.T) {
	k := load(t)
	h := startHost(t)
	path := buildLibrary(t, t.TempDir())
	h.ask("open %s", path)
	tr, rows := start(t, Config{Programs: k.programs, Mode: Multi, ScanInterval: time.Hour})
	rows.attached(t, h.pid)
	require.NoError(t, tr.SetIntermittent([]uint32{1}))
	waitUnprobed(t, k, h)
	spoilers["other instructions"](t, path)
	_, err := tr.Resume(nil)
	require.ErrorContains(t, err, "libtracertest")
}
