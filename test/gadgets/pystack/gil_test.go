// SPDX-License-Identifier: Apache-2.0

package pystack

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// enum python_gil of bpf/python/gil.h.
const (
	gilHeld    = 1
	gilNotHeld = 2
	gilWaited  = 3
)

// TestGILOnly: of 31 threads only the main one, which loops, holds the GIL.
func TestGILOnly(t *testing.T) {
	for _, python := range pythons(t) {
		t.Run(filepath.Base(python), func(t *testing.T) {
			w := start(t, python, "testdata/threads.py", "30")
			truth(t, w)
			c := load(t, wall, w.Process.Pid, "py_gil_only", "py_by_thread")
			fmt.Fprintln(w.in, "window 60") // until it is killed
			time.Sleep(100 * time.Millisecond)
			const passes = 20
			for range passes {
				threads(t, c)
			}
			var sum uint64
			for k, v := range rows(t, c) {
				sum += v.Samples
				if k.TID != uint32(w.Process.Pid) || v.GIL != v.Samples {
					t.Errorf("thread %d has %d samples, %d with the GIL", k.TID, v.Samples, v.GIL)
				}
			}
			if sum < passes*9/10 {
				t.Errorf("%d samples in %d passes", sum, passes)
			}
		})
	}
}

// TestDumpShowsWhichThreadsWaitForTheGIL: of threads that all need it, one holds it and
// the others sleep until they get it; one that waits for another lock does not.
func TestDumpShowsWhichThreadsWaitForTheGIL(t *testing.T) {
	for _, python := range pythons(t) {
		t.Run(filepath.Base(python), func(t *testing.T) {
			w := start(t, python, "testdata/gil.py")
			w.read(t, nil)
			resume := w.hold(t)
			c := load(t, dump, w.Process.Pid)
			resume()
			for threads(t, c)[uint32(w.Process.Pid)].Syscall != unix.SYS_READ { // the main one has needed it to print
				time.Sleep(10 * time.Millisecond)
			}
			const enough = 20
			held, waited, asleep := 0, 0, 0
			for end := time.Now().Add(10 * time.Second); (held < enough || asleep < enough) && time.Now().Before(end); time.Sleep(7 * time.Millisecond) {
				for tid, one := range threads(t, c) {
					var name string
					if one.StackID != 0 {
						name = frames(t, c, one.StackID)[0].name
					}
					switch {
					case name == "wants" && one.GIL == gilHeld:
						held++
					case name == "wants" && one.State == 3:
						asleep++
						if one.GIL == gilWaited {
							waited++
						}
					case name != "wants" && one.GIL != gilNotHeld:
						t.Errorf("thread %d, in %s, has GIL %d", tid, name, one.GIL)
					}
				}
			}
			t.Logf("held %d times, waited for by %d of %d that slept", held, waited, asleep)
			if held < enough || asleep < enough {
				t.Errorf("in 10 s it was held %d times, and %d threads slept", held, asleep)
			}
			// A thread that has just been woken is in the call still.
			if waited < asleep*9/10 {
				t.Errorf("%d of %d sleepers wait for it", waited, asleep)
			}
		})
	}
}
