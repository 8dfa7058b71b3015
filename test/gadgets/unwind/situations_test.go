// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject"
)

// TestForkedChildWithoutParentEvents is the pre-fork server: the child has no page tables
// for clean file mappings, and no earlier event helps.
func TestForkedChildWithoutParentEvents(t *testing.T) {
	eachWithProbe(t, func(t *testing.T, p *probe, python interpreter, first int) {
		out := p.run(t, python, "prefork", 50, first)
		p.check(t, 50, fmt.Sprintf("%s.%d", out, 1<<24))
	})
}

// TestAnotherThreadSearches: while one thread waits for a page that the search for the interpreter
// reads, another one finds it. That the first waits is what the test stores.
func TestAnotherThreadSearches(t *testing.T) {
	eachWithProbe(t, func(t *testing.T, p *probe, python interpreter, first int) {
		seen := filepath.Join(t.TempDir(), "seen")
		waits := make(chan error, 1)
		go func() { waits <- p.searchWaits(t.Context(), uint64(first), seen) }()
		out := p.run(t, python, "late", 20, first, seen)
		if err := <-waits; err != nil {
			t.Fatal(err)
		}
		p.check(t, 20, out)
	})
}

// searchWaits stores, once there is a sample, that a page which its process's search needs is missing,
// and then makes a file.
func (p *probe) searchWaits(ctx context.Context, sample uint64, file string) error {
	defer os.WriteFile(file, nil, 0o600) // in any case: the workload waits for it
	var m mark
	for p.Maps["samples_by_id"].Lookup(sample, &m) != nil {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
	found := p.Maps["python_by_process"]
	b, err := found.LookupBytes(m.Process)
	if err != nil {
		return err
	}
	if b == nil {
		return fmt.Errorf("sample %d has no interpreter", sample)
	}
	binary.NativeEndian.PutUint64(b[8:], math.MaxUint64) // the next search
	binary.NativeEndian.PutUint32(b[16:], statusUnreadable)
	binary.NativeEndian.PutUint32(b[24:], 1) // the first one
	return found.Put(m.Process, b)
}

// TestDeepStackKeepsInnermost: 128 frames are kept, and the flag reports the truncation.
func TestDeepStackKeepsInnermost(t *testing.T) {
	eachWithProbe(t, func(t *testing.T, p *probe, python interpreter, first int) {
		p.check(t, 6, p.run(t, python, "deep", 0, first))
	})
}

// TestExecGivesAnotherInterpreter: the same pid, first one version, then another.
func TestExecGivesAnotherInterpreter(t *testing.T) {
	eachWithProbe(t, func(t *testing.T, p *probe, python interpreter, first int) {
		found, err := interpreters()
		if err != nil {
			t.Fatal(err)
		}
		other := python
		for _, i := range found {
			if i.root == python.root && i.path != python.path {
				other = i
			}
		}
		out := p.run(t, python, "exec", 50, first, other.path)
		p.check(t, 100, out, out+".exec")
		t.Logf("first %s, then %s", python.path, other.path)
	})
}

// TestPidNamespace: the pids that the process sees are not the kernel's.
func TestPidNamespace(t *testing.T) {
	eachWithProbe(t, func(t *testing.T, p *probe, python interpreter, first int) {
		p.check(t, 50, p.run(t, python.pidNamespace(), "few", 50, first))
	})
}

// TestStartedByTheLoader: the program that the kernel started is the dynamic linker, and
// the interpreter its argument. A fork of it is the same.
func TestStartedByTheLoader(t *testing.T) {
	eachWithProbe(t, func(t *testing.T, p *probe, python interpreter, first int) {
		python = python.byLoader(t)
		p.check(t, 50, p.run(t, python, "few", 50, first))
		out := p.run(t, python, "prefork", 50, first+1000)
		p.check(t, 50, fmt.Sprintf("%s.%d", out, 1<<24))
	})
}

// TestStartingThread: up to 3.11 its state, newer than that of the thread
// that starts it, has the same id for a while.
func TestStartingThread(t *testing.T) {
	eachWithProbe(t, func(t *testing.T, p *probe, python interpreter, first int) {
		p.check(t, 80, p.run(t, python, "starting", 40, first))
	})
}

// TestForeignThreads: threads that C made, which have a thread state only during
// a callback, at an address that is used again; and one that never has any.
func TestForeignThreads(t *testing.T) {
	eachWithProbe(t, func(t *testing.T, p *probe, python interpreter, first int) {
		before := p.dropped(t, dropThread)
		p.check(t, 200, p.run(t, python, "foreign", 200, first))
		_, s, err := p.sample(uint64(first + 1<<30))
		if err != nil {
			t.Fatal(err)
		}
		if s.Flags != flagHasPython || s.PythonCount != 0 || p.dropped(t, dropThread) != before+1 {
			t.Errorf("thread without Python: flags %d, %d frames%s; want 1, 0", s.Flags, s.PythonCount, p.drops(t))
		}
	})
}

// TestGreenletShowsTheRunningOne, after switches between them, to parents, by an
// exception, and in other threads; where the module is installed.
func TestGreenletShowsTheRunningOne(t *testing.T) {
	eachWithProbe(t, func(t *testing.T, p *probe, python interpreter, first int) {
		if !python.can("greenlet") {
			t.Skipf("%s cannot import greenlet", python.path)
		}
		p.check(t, 100, p.run(t, python, "greenlet", 0, first))
	})
}

// TestGeventShowsTheRunningGreenlet with its hub, its thread pool and its locks.
func TestGeventShowsTheRunningGreenlet(t *testing.T) {
	eachWithProbe(t, func(t *testing.T, p *probe, python interpreter, first int) {
		if !python.can("gevent") {
			t.Skipf("%s cannot import gevent", python.path)
		}
		p.check(t, 300, p.run(t, python, "gevent", 0, first))
	})
}

// TestAsyncioShowsTheAwaitChain: coroutines that await coroutines, generators and
// objects, many tasks in turn. The workload itself checks that the chain is in the frames
// of sys._getframe().
func TestAsyncioShowsTheAwaitChain(t *testing.T) {
	eachWithProbe(t, func(t *testing.T, p *probe, python interpreter, first int) {
		p.check(t, 200, p.run(t, python, "asyncio", 40, first))
	})
}

// TestFreedCodeIsNeverNamed: code objects that are freed, and others at the same address,
// which differ only in a part of the name, of the file or of the line table. The workload
// itself checks that addresses are reused.
func TestFreedCodeIsNeverNamed(t *testing.T) {
	eachWithProbe(t, func(t *testing.T, p *probe, python interpreter, first int) {
		p.check(t, 2000, p.run(t, python, "reuse", 2000, first))
	})
}

// TestFreedMethodIsNeverNamed: below 3.11 the function that gave a method its class may be
// freed, and still have the addresses of a code object and a qualname that live again.
func TestFreedMethodIsNeverNamed(t *testing.T) {
	eachWithProbe(t, func(t *testing.T, p *probe, python interpreter, first int) {
		if python.minor >= 11 {
			t.Skipf("%s: code has its qualname", python.path)
		}
		samples := subject.Volume(2500, 20000)
		p.check(t, samples, p.run(t, python, "methods", samples, first))
	})
}

// TestReloadedCode: the code of a function in a class, or in a module, is replaced again
// and again, at addresses that code had before. Below 3.11 only a comparison at every
// eighth event shows that; after that it is made at every event.
func TestReloadedCode(t *testing.T) {
	eachWithProbe(t, func(t *testing.T, p *probe, python interpreter, first int) {
		allowed := 0
		if python.minor < 11 {
			allowed = 60 // without the comparison it is about 200
		}
		for _, samples := range []int{2000, 2001} { // an odd number: of a module
			p.checkBut(t, samples, allowed, p.run(t, python, "reload", samples, first))
			first += samples
		}
	})
}

// TestOddNames: 10 MB of name, characters that UTF-8 does not have, NUL.
func TestOddNames(t *testing.T) {
	eachWithProbe(t, func(t *testing.T, p *probe, python interpreter, first int) {
		p.check(t, 6, p.run(t, python, "names", 0, first))
	})
}

// TestSubinterpreter: the thread has a state in two interpreters, or three; the
// stack is that of the one it is in.
func TestSubinterpreter(t *testing.T) {
	eachWithProbe(t, func(t *testing.T, p *probe, python interpreter, first int) {
		out := p.run(t, python, "interpreters", 50, first)
		p.check(t, 350, out, out+".sub", out+".sub.sub", out+".sub.sub.sub")
	})
}

// TestSubinterpreterAfterAnother: it has the addresses of the one before, and from
// 3.13 on numbers its code objects from the beginning, too.
func TestSubinterpreterAfterAnother(t *testing.T) {
	eachWithProbe(t, func(t *testing.T, p *probe, python interpreter, first int) {
		out := p.run(t, python, "successors", 6, first)
		var files []string
		for number := range 6 {
			files = append(files, out+strings.Repeat(".sub", number+1))
		}
		p.check(t, 6, files...)
	})
}

// TestSubinterpreterWithItsOwnLock runs beside the main one (3.12+).
func TestSubinterpreterWithItsOwnLock(t *testing.T) {
	eachWithProbe(t, func(t *testing.T, p *probe, python interpreter, first int) {
		if python.minor < 12 {
			t.Skipf("%s is older than 3.12: one lock for all interpreters", python.path)
		}
		out := p.run(t, python, "ownlock", 50, first)
		p.check(t, 200, out, out+".sub")
	})
}

// TestInterpreterLoadedLater: at first there is no Python in the process, then a
// program in C loads libpython.
func TestInterpreterLoadedLater(t *testing.T) {
	eachWithProbe(t, func(t *testing.T, p *probe, python interpreter, first int) {
		if python.root != "-" {
			t.Skipf("%s is in another root, where it is linked to libpython instead", python.name)
		}
		lib := python.libpython()
		if lib == "" {
			t.Skipf("%s has no libpython3.*.so.1.0 in ../lib", python.path)
		}
		embed := build(t, filepath.Join(t.TempDir(), "embed"), "testdata/embed.c", p.library,
			"-Wl,-rpath,"+filepath.Dir(p.library), "-ldl")
		cmd := exec.Command(embed, lib, p.library, fmt.Sprint(first))
		cmd.Env = append(os.Environ(), "PYTHONHOME="+filepath.Dir(filepath.Dir(python.path)))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		for id, want := range [][]frame{
			nil,
			{{"inner", "", "<string>", 3}, {"<module>", "", "<string>", 4}},
		} {
			_, s, err := p.sample(uint64(first + id))
			if err != nil {
				t.Fatal(err)
			}
			if got := p.frames(s); !slices.Equal(want, got) {
				t.Errorf("sample %d: %v, want %v", id, got, want)
			}
		}
	})
}
