// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"debug/elf"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/elf/usdt"
)

// buildStatic builds libstatictest.so with a probe `test:hit` at two places, and
// test:once; flags make a hostile one of it.
func buildStatic(t testing.TB, flags ...string) string {
	t.Helper()
	header, err := filepath.Abs("../../examples/simcupti/probe.h")
	require.NoError(t, err)
	dir := t.TempDir()
	source, path := filepath.Join(dir, "lib.c"), filepath.Join(dir, "libstatictest.so")
	require.NoError(t, os.WriteFile(source, []byte(`
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include "`+header+`"
PROBE_SEMAPHORE(test, hit);
PROBE_SEMAPHORE(test, once);
#ifdef IN_CODE
__attribute__((section(".text"))) const unsigned short test_code_semaphore = 0;
#define hit code
#endif
#ifndef ARGUMENT
#define ARGUMENT "4@%0"
#endif
#define PLACE(name) PROBE_(test, name, ARGUMENT, "nor"((unsigned)n))
int listeners(void) { return test_hit_semaphore + test_once_semaphore; }
__attribute__((noinline)) int hit(void *p, unsigned long n) { PLACE(PROBE); return 0; }
int hitTwice(void *p, unsigned long n) { hit(p, n); PLACE(PROBE); return 0; }
int once(void *p, unsigned long n) { PROBE_(test, once, "", "nor"(1)); return 0; }

/* As while the loader relocates what shares a page of the file with the semaphores: lower
 * addresses have that page, too, and are writable. */
static void *lower;
int relocate(void)
{
	Dl_info info;
	int fd;

	dladdr(&lower, &info);
	fd = open(info.dli_fname, O_RDONLY);
	/* Not its code, in which the kernel would set breakpoints, too. */
	lower = mmap(info.dli_fbase - (1 << 24), 1 << 14, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_FIXED_NOREPLACE, fd, 0x2000);
	return lower == MAP_FAILED;
}
int relocated(void) { return mprotect(lower, 1 << 14, PROT_READ); }

/* As before the loader has mapped what has the semaphores. */
static int protect(int how)
{
	unsigned long first = (unsigned long)&test_hit_semaphore & -4096, last = (unsigned long)&test_once_semaphore & -4096;

	return mprotect((void *)first, last - first + 4096, how);
}
int hidden(void) { return protect(PROT_READ); }
int shown(void) { return protect(PROT_READ | PROT_WRITE); }
`), 0o644))
	run(t, "gcc", append([]string{"-O1", "-shared", "-fPIC", "-Wl,--build-id", "-o", path, source}, flags...)...)
	return path
}

// staticConfig counts calls of test:hit under cookie 41, of test:once under 42.
func staticConfig(k *kernel, m Mode) Config {
	probe := func(name string) StaticProbe {
		return StaticProbe{Library: "libstatictest", Provider: "test", Name: name, Program: k.programs.Enter}
	}
	return Config{Programs: k.programs, Mode: m, USDT: USDT{
		Probes: []StaticProbe{probe("hit"), probe("once")},
		Site: func(machine elf.Machine, arguments string) (uint64, error) {
			all, err := usdt.Parse(machine, arguments)
			if err != nil {
				return 0, err
			}
			return uint64(42 - len(all)), nil
		},
	}}
}

// TestStaticProbesAreOfTheTracedProcessAlone: another one that has mapped the same file
// has no listeners, and after the end no process has.
func TestStaticProbesAreOfTheTracedProcessAlone(t *testing.T) {
	eachMode(t, func(t *testing.T, mode Mode) {
		k := load(t)
		path := buildStatic(t, "-DPROBE=hit")
		traced, other := startHost(t), startHost(t)
		for _, h := range []*host{traced, other} {
			h.ask("open %s", path)
			require.Zero(t, h.ask("ask listeners"))
		}
		cfg := staticConfig(k, mode)
		cfg.PIDs = []uint32{traced.pid}
		tr, rows := start(t, cfg)
		row, _ := rows.attached(t, traced.pid)
		require.Equal(t, []any{2, 2, Perf, path}, []any{row.Symbols, row.Wanted, row.Mode, row.Path})
		require.Equal(t, "USDT: 3 places, 3 semaphores", row.Note)
		require.Len(t, row.BuildID, 40)
		require.EqualValues(t, 3, traced.ask("ask listeners"), "two places of one probe, and one")
		require.Zero(t, other.ask("ask listeners"))
		for _, h := range []*host{traced, other} {
			h.ask("call hit 5")
			h.ask("call hitTwice 3")
			h.ask("call once 2")
		}
		recorded, _ := k.calls(t, 41)
		once, _ := k.calls(t, 42)
		require.Equal(t, []int{5 + 2*3, 2}, []int{recorded, once})
		tr.Stop()
		require.Zero(t, traced.ask("ask listeners"))
		require.Zero(t, other.ask("ask listeners"))
	})
}

// TestStaticProbesOfALaterProcess, which maps the library late, and of one that lets go.
func TestStaticProbesOfALaterProcess(t *testing.T) {
	k := load(t)
	path := buildStatic(t, "-DPROBE=hit")
	tr, rows := start(t, staticConfig(k, Auto))
	first, second := startHost(t), startHost(t)
	first.ask("open %s", path)
	rows.attached(t, first.pid)
	second.ask("open %s", path)
	rows.attached(t, second.pid)
	require.EqualValues(t, 3, first.ask("ask listeners"))
	require.EqualValues(t, 3, second.ask("ask listeners"))
	require.Equal(t, 2, tr.Stats().Attached)
	first.stop()
	rows.wait(t, "gone", func(a Attachment) bool { return a.PID == first.pid && a.Status == StatusGone })
	require.EqualValues(t, 3, second.ask("ask listeners"))
	second.ask("call hit 4")
	recorded, _ := k.calls(t, 41)
	require.Equal(t, 4, recorded)
}

// TestHostileStaticProbesAreNotAttached, none of a library of which one is not: it would
// do its work in vain.
func TestHostileStaticProbesAreNotAttached(t *testing.T) {
	k := load(t)
	for name, c := range map[string]struct {
		flags  []string
		status Status
		text   string
	}{
		"arguments that are not known": {[]string{"-DPROBE=hit", `-DARGUMENT="16@%%xmm0"`}, StatusFailed, "of 16 bytes"},
		"semaphore in the code":        {[]string{"-DPROBE=hit", "-DIN_CODE"}, StatusFailed, "no writable part"},
		"another name":                 {[]string{"-DPROBE=once"}, StatusFailed, "test:hit is not in it"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := staticConfig(k, Auto)
			if name == "semaphore in the code" {
				cfg.USDT.Probes[0].Name = "code"
			}
			h := startHost(t)
			h.ask("open %s", buildStatic(t, c.flags...))
			tr, rows := start(t, cfg)
			row, _ := rows.wait(t, "failed", func(a Attachment) bool { return a.PID == h.pid })
			require.Equal(t, c.status, row.Status, "%+v", row)
			require.Contains(t, row.Error, c.text)
			require.Zero(t, row.Symbols)
			require.Zero(t, h.ask("ask listeners"))
			require.Zero(t, tr.Stats().Attached)
		})
	}
}

// TestStaticProbesWaitForTheirContainer: of a process that is not visible nothing is
// attached until it is.
func TestStaticProbesWaitForTheirContainer(t *testing.T) {
	k := load(t)
	h := startHost(t)
	h.ask("open %s", buildStatic(t, "-DPROBE=hit"))
	cfg := staticConfig(k, Auto)
	visible := make(chan bool, 1)
	visible <- false
	cfg.Visible = func(Attachment) bool { v := <-visible; visible <- v; return v }
	tr, rows := start(t, cfg)
	require.Zero(t, h.ask("ask listeners"))
	<-visible
	visible <- true
	tr.ReportAgain(func(Attachment) bool { return true })
	rows.attached(t, h.pid)
	require.EqualValues(t, 3, h.ask("ask listeners"))
}

// TestStaticProbesWaitForTheLoader: while the first writable mapping that has a semaphore's place
// in the file is another one, or none is, the kernel would count up that, or the next.
func TestStaticProbesWaitForTheLoader(t *testing.T) {
	k := load(t)
	for name, c := range map[string]struct{ before, after []string }{
		"relocates":            {[]string{"relocate"}, []string{"relocated"}},
		"has not mapped it":    {[]string{"hidden"}, []string{"shown"}},
		"has mapped the other": {[]string{"relocate", "hidden"}, []string{"shown", "relocated"}},
	} {
		t.Run(name, func(t *testing.T) {
			h := startHost(t)
			h.ask("open %s", buildStatic(t, "-DPROBE=hit"))
			for _, function := range c.before {
				require.Zero(t, h.ask("ask %s", function))
			}
			cfg := staticConfig(k, Auto)
			cfg.ScanInterval = 20 * time.Millisecond
			tr, rows := start(t, cfg)
			require.Never(t, func() bool { return tr.Stats().Attached > 0 }, 300*time.Millisecond, 20*time.Millisecond)
			require.Zero(t, h.ask("ask listeners"))
			for _, function := range c.after {
				require.Zero(t, h.ask("ask %s", function))
			}
			rows.attached(t, h.pid)
			require.EqualValues(t, 3, h.ask("ask listeners"))
			before, _ := k.calls(t, 41)
			h.ask("call hit 5")
			calls, _ := k.calls(t, 41)
			require.Equal(t, 5, calls-before)
			tr.Stop()
			require.Zero(t, h.ask("ask listeners"))
		})
	}
}

func TestALibraryHasFunctionsOrStaticProbes(t *testing.T) {
	cfg := Config{Points: testPoints, USDT: USDT{Probes: []StaticProbe{{Library: "libtracertest"}}}}
	_, err := New(cfg)
	require.ErrorContains(t, err, "libtracertest has functions and static probes")
	require.False(t, errors.Is(err, os.ErrNotExist))
}
