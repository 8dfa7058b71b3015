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

// lie is a kind of testdata/hostile.c, and what a sample of it has.
type lie struct {
	// isHidden is of the build that exports nothing: it tests the search for the interpreter.
	isHidden bool
	kind     string
	flags    uint32
	frames   int
	drop     string // counted reason, if any
}

var lies = []lie{
	{false, "interpreters", flagHasPython, 0, dropThread},
	{false, "interpreters in a circle", flagHasPython, 0, dropThread},
	{false, "threads", flagHasPython, 0, dropThread},
	{false, "frames", flagHasPython | flagTruncated, 128, ""},
	{false, "frames in a circle", flagHasPython | flagTruncated, 128, ""},
	{false, "wild", flagHasPython | flagIncomplete, 1, dropFault},
	{false, "kernel", flagHasPython | flagIncomplete, 1, dropFault},
	{false, "wild cframe", flagHasPython | flagIncomplete, 0, dropFault},
	{false, "wild interpreter", flagHasPython | flagIncomplete, 0, dropFault},
	{false, "wild thread", flagHasPython | flagIncomplete, 0, dropFault},
	{false, "code", flagHasPython, 1, dropFault},
	{false, "string", flagHasPython, 1, ""},
	{false, "length", flagHasPython, 1, dropFault},
	{false, "table", flagHasPython, 1, ""},
	{false, "long table", flagHasPython, 1, dropLine},
	{false, "long tables", flagHasPython, 100, dropFault},
	{false, "instruction", flagHasPython, 1, ""},
	{false, "version", 0, 0, dropUnsupported},
	{false, "3.16", 0, 0, dropUnsupported},
	{false, "4.11", 0, 0, dropUnsupported},
	{false, "cookie", 0, 0, dropUnsupported},
	{false, "cookie of 3.16", 0, 0, dropUnsupported},
	{false, "cookie of 3.14t", 0, 0, dropUnsupported},
	{false, "cookie of 3.15t", 0, 0, dropUnsupported},
	{true, "modules in a circle", 0, 0, ""},
	{true, "wild module", flagIncomplete, 0, dropFault},
	{true, "dynamic section without end", 0, 0, ""},
	{true, "hash chain without end", 0, 0, ""},
	{true, "hash table of all ones", flagIncomplete, 0, dropFault},
}

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
		for n, l := range lies {
			t.Run(l.kind+"/"+program, func(t *testing.T) {
				executable := liar
				if l.isHidden {
					executable = hidden
				}
				l.check(t, p, program, executable, uint64(n+1)<<8)
			})
		}
	}
}

// check runs the program that lies, and compares its two samples, from the id first on.
func (l lie) check(t *testing.T, p *probe, program, executable string, first uint64) {
	t.Helper()
	var before uint64
	if l.drop != "" {
		before = p.dropped(t, l.drop)
	}
	was, err := p.Programs[program].Stats()
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(executable, l.kind, fmt.Sprint(first)).CombinedOutput(); err != nil {
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
		if s.Flags != l.flags || int(s.PythonCount) != l.frames {
			t.Errorf("sample %d: flags %d, %d frames; want %d, %d", id-first, s.Flags, s.PythonCount, l.flags, l.frames)
		}
	}
	if l.drop != "" && p.dropped(t, l.drop) == before {
		t.Errorf("not counted as %s%s", l.drop, p.drops(t))
	}
}

// TestANameThatIsMissedIsReadAgain: of a function that is new at an address, and whose name is not in memory,
// nothing is kept. The place was seen before, and the thread may recall it.
func TestANameThatIsMissedIsReadAgain(t *testing.T) {
	bpftest.RequireRoot(t)
	spec := unwinder(t)
	for program, want := range map[string][]string{
		"mark_sleepable": {"evil", "late", "late"}, // a second attempt, with the page
		"mark_atomic":    {"evil", "", "late"},
	} {
		t.Run(program, func(t *testing.T) {
			const first = 1 << 8
			p := attach(t, spec, program)
			executable := build(t, filepath.Join(t.TempDir(), "late"), "testdata/hostile.c", p.library,
				"-Wl,-rpath,"+filepath.Dir(p.library), "-lpthread", "-rdynamic")
			if out, err := exec.Command(executable, "late name", fmt.Sprint(first)).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			missed := uint64(0)
			for n, name := range want {
				_, s, err := p.sample(first + uint64(n))
				if err != nil {
					t.Fatal(err)
				}
				frames := p.frames(s)
				if name == "" {
					missed++
				} else if len(frames) != 1 || frames[0].name != name {
					t.Errorf("sample %d: %+v, want %s", n, frames, name)
				}
			}
			if n := p.dropped(t, dropFault); n != missed {
				t.Errorf("%d stacks are counted as incomplete, want %d%s", n, missed, p.drops(t))
			}
		})
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
