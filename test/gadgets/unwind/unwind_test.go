// SPDX-License-Identifier: Apache-2.0

// Package unwind has the truth test of the in-kernel Python unwinder: at each call of a
// probed function the stack taken in the kernel is compared, frame by frame, with that of
// sys._getframe() right before.
//
// make test runs it with the interpreters of this machine, make test-python with
// many more: see pythons.sh.
package unwind

import (
	"fmt"
	"os"
	"testing"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/bpftest"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject"
)

// TestFramesEqualGetframe is the truth test: methods, closures, generators,
// comprehensions, callbacks from C, exec'd code, wide names, tracing; six
// threads, and a forked child.
func TestFramesEqualGetframe(t *testing.T) {
	bpftest.RequireRoot(t)
	spec := unwinder(t)
	found, err := interpreters()
	if err != nil {
		t.Fatal(err)
	}
	for _, python := range found {
		t.Run(python.name, func(t *testing.T) {
			for _, c := range []struct {
				program string
				samples int
			}{
				{"mark_sleepable", everything(6000, subject.Volume(2500, 6000))},
				{"mark_atomic", everything(6000, 600)},
			} {
				t.Run(c.program, func(t *testing.T) {
					p := attach(t, spec, c.program)
					out := p.run(t, python, "mix", c.samples, 1)
					p.check(t, c.samples*11/12, out, fmt.Sprintf("%s.%d", out, 1<<24))
				})
			}
		})
	}
}

// everything is the first of two figures in make test-python, the second, a
// quicker one, in make test.
func everything(all, quick int) int {
	if os.Getenv("PYTHONS") != "" {
		return all
	}
	return quick
}

// eachWithProbe runs f as a subtest per interpreter with one probe for all; ids
// from `first` on are the interpreter's own.
func eachWithProbe(t *testing.T, f func(t *testing.T, p *probe, python interpreter, first int)) {
	t.Helper()
	bpftest.RequireRoot(t)
	p := attach(t, unwinder(t), "mark_sleepable")
	found, err := interpreters()
	if err != nil {
		t.Fatal(err)
	}
	for n, python := range found {
		t.Run(python.name, func(t *testing.T) { f(t, p, python, (n+1)<<32) })
	}
}
