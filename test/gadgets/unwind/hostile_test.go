// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/bpftest"
)

// TestHostileInterpreter: endless lists, wild pointers, lengths out of range, cyclic
// tables. The work is bounded, the outcome is reported, and no event is lost.
func TestHostileInterpreter(t *testing.T) {
	bpftest.RequireRoot(t)
	spec := unwinder(t)
	stats, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
	if err != nil {
		t.Fatal(err)
	}
	defer stats.Close()
	for _, program := range []string{"mark_sleepable", "mark_atomic"} {
		p := attach(t, spec, program)
		link := []string{"testdata/hostile.c", p.library, "-Wl,-rpath," + filepath.Dir(p.library), "-lpthread"}
		liar := build(t, filepath.Join(t.TempDir(), "liar"), append(link, "-rdynamic")...)
		// One that exports nothing: this tests the search for the interpreter.
		hidden := build(t, filepath.Join(t.TempDir(), "hidden"), append(link, "-Wl,-z,now,-z,norelro")...)
		for n, c := range []struct {
			program, kind string
			flags         uint32
			frames        int
			drop          string // counted reason, if any
		}{
			{liar, "interpreters", flagHasPython, 0, dropThread},
			{liar, "interpreters in a circle", flagHasPython, 0, dropThread},
			{liar, "threads", flagHasPython, 0, dropThread},
			{liar, "frames", flagHasPython | flagTruncated, 128, ""},
			{liar, "frames in a circle", flagHasPython | flagTruncated, 128, ""},
			{liar, "wild", flagHasPython | flagIncomplete, 1, dropFault},
			{liar, "kernel", flagHasPython | flagIncomplete, 1, dropFault},
			{liar, "wild cframe", flagHasPython | flagIncomplete, 0, dropFault},
			{liar, "wild interpreter", flagHasPython | flagIncomplete, 0, dropFault},
			{liar, "wild thread", flagHasPython | flagIncomplete, 0, dropFault},
			{liar, "code", flagHasPython, 1, dropFault},
			{liar, "string", flagHasPython, 1, ""},
			{liar, "length", flagHasPython, 1, dropFault},
			{liar, "table", flagHasPython, 1, ""},
			{liar, "instruction", flagHasPython, 1, ""},
			{liar, "version", 0, 0, dropUnsupported},
			{liar, "3.16", 0, 0, dropUnsupported},
			{liar, "4.11", 0, 0, dropUnsupported},
			{liar, "cookie", 0, 0, dropUnsupported},
			{liar, "cookie of 3.16", 0, 0, dropUnsupported},
			{liar, "cookie of 3.14t", 0, 0, dropUnsupported},
			{liar, "cookie of 3.15t", 0, 0, dropUnsupported},
			{hidden, "modules in a circle", 0, 0, ""},
			{hidden, "wild module", flagIncomplete, 0, dropFault},
			{hidden, "dynamic section without end", 0, 0, ""},
			{hidden, "hash chain without end", 0, 0, ""},
			{hidden, "hash table of all ones", flagIncomplete, 0, dropFault},
		} {
			t.Run(c.kind+"/"+program, func(t *testing.T) {
				first := uint64(n+1) << 8
				var before uint64
				if c.drop != "" {
					before = p.dropped(t, c.drop)
				}
				was, err := p.Programs[program].Stats()
				if err != nil {
					t.Fatal(err)
				}
				if out, err := exec.Command(c.program, c.kind, fmt.Sprint(first)).CombinedOutput(); err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
				is, err := p.Programs[program].Stats()
				if err != nil {
					t.Fatal(err)
				}
				// The machine may take the processor away meanwhile.
				took := (is.Runtime - was.Runtime) / time.Duration(is.RunCount-was.RunCount)
				if took > 50*time.Millisecond {
					t.Errorf("%v per event", took)
				}
				for id := first; id <= first+1; id++ {
					_, s, err := p.sample(id)
					if err != nil {
						t.Fatal(err)
					}
					if s.Flags != c.flags || int(s.PythonCount) != c.frames {
						t.Errorf("sample %d: flags %d, %d frames; want %d, %d", id-first, s.Flags, s.PythonCount, c.flags, c.frames)
					}
				}
				if c.drop != "" && p.dropped(t, c.drop) == before {
					t.Errorf("not counted as %s%s", c.drop, p.drops(t))
				}
			})
		}
	}
}

// TestUnknownVersionIsRefused: a real interpreter that claims an unknown or untested
// version is reported, and its layout is not guessed.
func TestUnknownVersionIsRefused(t *testing.T) {
	eachWithProbe(t, func(t *testing.T, p *probe, python interpreter, first int) {
		if python.minor < 13 {
			t.Skipf("%s is older than 3.13: its version is not in _PyRuntime", python.path)
		}
		for n, c := range []struct {
			version      string
			freeThreaded string
		}{{"0x031000a1", "0"}, {"0x040000f0", "0"}, {"0x030e00f0", "1"}, {"0x030f00f0", "1"}} {
			before := p.dropped(t, dropUnsupported)
			id := first + n*16
			p.run(t, python, "pretend", 0, id, c.version, c.freeThreaded)
			m, s, err := p.sample(uint64(id))
			if err != nil {
				t.Fatal(err)
			}
			if s.Flags != 0 || s.PythonCount != 0 {
				t.Errorf("%v: flags %d, %d frames; want none", c, s.Flags, s.PythonCount)
			}
			if status := p.process(m.Process).Status; status != statusUnsupported {
				t.Errorf("%v: status %d, want %d", c, status, statusUnsupported)
			}
			if p.dropped(t, dropUnsupported) != before+1 {
				t.Errorf("%v: not counted%s", c, p.drops(t))
			}
		}
	})
}

// statusUnsupported is PYTHON_UNSUPPORTED of bpf/python/runtime/state.h.
const statusUnsupported = 3
