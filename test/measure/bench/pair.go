// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/internal/tracer/overhead"
)

// Targets: added run time of a pair of calls.
const (
	targetPair  = 2000.0 // ns, without stacks
	targetStack = 1000.0 // ns, of a stack that was seen before
	targetFrame = 200.0  // ns, for each of its Python frames
)

func ns(v float64) string { return "≤ " + number(v) }

// traced starts ig-gpu and finds its programs. The workload runs already.
func (b *bench) traced(args ...string) (*agent, *programs, error) {
	a, err := b.startAgent(args...)
	if err != nil {
		return nil, nil, err
	}
	if _, err = a.waitRow(); err == nil {
		var p *programs
		if p, err = programsOf(a.cmd.Process.Pid); err == nil {
			return a, p, nil
		}
	}
	a.stop()
	return nil, nil, err
}

// pair measures a caller in C, whose frames can be followed.
func (b *bench) pair() error {
	b.title("eBPF run time of a cuMemAlloc and cuMemFree pair, caller in C", "ns", "added")
	for _, c := range []struct {
		name, target, stacks string
		frames               int
	}{
		{"without stacks", ns(targetPair), "--stacks=false", 1},
		{"with stacks, 1 frame", ns(targetStack) + " added", "--stacks=true", 1},
		{"with stacks, 10 frames", "", "--stacks=true", 10},
		{"with stacks, 30 frames", "", "--stacks=true", 30},
	} {
		v, err := b.pairCase(c.frames, c.stacks, "")
		if err != nil {
			return err
		}
		if b.pairBaseline == 0 {
			b.pairBaseline = v
			b.row(c.name, c.target, number(v), number(v))
		} else {
			b.row(c.name, c.target, number(v), number(v-b.pairBaseline))
		}
	}
	return b.limited()
}

// limited measures the pair where a vGPU library passes allocations on to the driver: the test's
// own, as HAMi's would not run on the simulated driver.
func (b *bench) limited() error {
	dir, err := os.MkdirTemp("", "gpu-gadgets-bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	library := filepath.Join(dir, "libvgpu.so")
	out, err := exec.Command("cc", "-O2", "-shared", "-fPIC", "-o", library, "test/product/e2e/testdata/vgpu.c", "-ldl").CombinedOutput()
	if err != nil {
		return fmt.Errorf("build a vGPU library: %w: %s", err, out)
	}
	v, err := b.pairCase(1, "--stacks=false", library)
	if err != nil {
		return err
	}
	v *= 3.0 / 2 // entries of a pair: the library's, and two of the driver
	b.row("with a vGPU library, without stacks", "", number(v), number(v-b.pairBaseline))
	return nil
}

// pairCase measures two entries and their returns, with a library that is preloaded; "": none.
func (b *bench) pairCase(frames int, stacks, preload string) (float64, error) {
	w, err := start(nil, "env", "LD_PRELOAD="+preload, b.workload, "-l", b.library, "-n", "100000000", "-d", strconv.Itoa(frames))
	if err != nil {
		return 0, err
	}
	defer w.stop()
	a, p, err := b.traced(stacks)
	if err != nil {
		return 0, err
	}
	defer a.stop()
	defer p.close()
	return p.nsPerPair(1500 * time.Millisecond)
}

var depths = []int{1, 4, 10, 25, 50, 100}

// python measures callers in Python by depth.
func (b *bench) python() error {
	if b.pairBaseline == 0 {
		if err := b.pair(); err != nil {
			return err
		}
	}
	var columns []string
	for _, d := range depths {
		columns = append(columns, strconv.Itoa(d))
	}
	b.title("eBPF run time of a pair by Python frames, less that without stacks, ns", append(columns, "fixed", "per frame")...)
	w, err := start(nil, b.workload, "-l", b.library, "-n", "100000000", "-r", "100")
	if err != nil {
		return err
	}
	defer w.stop()
	a, p, err := b.traced()
	if err != nil {
		return err
	}
	defer a.stop()
	defer p.close()
	w.stop() // it only made ig-gpu attach
	for minor := 8; minor <= 14; minor++ {
		name := fmt.Sprintf("CPython 3.%d", minor)
		python := findPython(minor)
		if python == "" {
			b.row(name, "", "not on this machine")
			continue
		}
		kinds := []string{"functions"}
		switch {
		case minor < 11: // for which functions are looked up in their classes and modules
			kinds = append(kinds, "methods", "changing")
		case minor == 11: // where functions are numbered when they are called again
			kinds = append(kinds, "new")
		}
		for _, kind := range kinds {
			if err := b.pythonDepths(name+", "+kind, python, kind, p); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return b.cold(p)
}

func (b *bench) pythonDepths(name, python, kind string, p *programs) error {
	return b.depths(name, ns(targetStack)+" + "+number(targetFrame)+"·n", python, kind, func() (float64, error) {
		v, err := p.nsPerPair(800 * time.Millisecond)
		return v - b.pairBaseline, err
	})
}

// depths measures calls from stacks of Python that are ever deeper, and fits a line.
func (b *bench) depths(name, target, python, kind string, measure func() (float64, error)) error {
	w, err := start(nil, python, b.depth, b.library, kind)
	if err != nil {
		return err
	}
	defer w.stop()
	var x, y []float64
	var texts []string
	for _, d := range depths {
		arrived := make(chan struct{})
		w.listen(func(line []byte) {
			if strings.HasPrefix(string(line), strconv.Itoa(d)+" ") {
				select {
				case <-arrived:
				default:
					close(arrived)
				}
			}
		})
		if _, err := io.WriteString(w.stdin, strconv.Itoa(d)+"\n"); err != nil {
			return err
		}
		select {
		case <-arrived:
		case <-time.After(10 * time.Second):
			return fmt.Errorf("no calls at depth %d: %s", d, w.errors.String())
		}
		v, err := measure()
		if err != nil {
			return err
		}
		x, y = append(x, float64(d)), append(y, v)
		texts = append(texts, number(v))
	}
	base, slope := line(x, y)
	b.row(name, target, append(texts, number(base), number(slope))...)
	return nil
}

// cold is all that the first calls of a process cost: finding the interpreter,
// the thread, the names, for two calls of set-up and a pair.
func (b *bench) cold(p *programs) error {
	var all []float64
	for range 5 {
		from, err := p.runs()
		if err != nil {
			return err
		}
		if out, err := exec.Command("python3", b.depth, b.library, "once").CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		to, err := p.runs()
		if err != nil {
			return err
		}
		all = append(all, float64(to.time-from.time))
	}
	b.title("eBPF run time of a process's first two calls and first pair, ns")
	b.row("python3, median of 5", "", number(overhead.Median(all)))
	return nil
}

// findPython returns an interpreter of that minor version, or "".
func findPython(minor int) string {
	home, _ := os.UserHomeDir()
	found, _ := filepath.Glob(filepath.Join(home, ".pyenv/versions", fmt.Sprintf("3.%d.*/bin/python3", minor)))
	if len(found) > 0 {
		return found[len(found)-1]
	}
	path, _ := exec.LookPath(fmt.Sprintf("python3.%d", minor))
	return path
}

// overhead measures the wall time of a call, with and without ig-gpu.
func (b *bench) overhead() error {
	w, err := start(nil, b.workload, "-l", b.library, "-n", "2000", "-p", "100000000")
	if err != nil {
		return err
	}
	defer w.stop()
	b.title("A pair on the clock, caller in C, ns", "without", "with", "added")
	before, err := pairTimes(w, 200, 3*time.Second)
	if err != nil {
		return err
	}
	a, p, err := b.traced()
	if err != nil {
		return err
	}
	p.close()
	with, err := pairTimes(w, 200, 3*time.Second)
	a.stop()
	if err != nil {
		return err
	}
	after, err := pairTimes(w, 200, 3*time.Second)
	if err != nil {
		return err
	}
	without := overhead.Median(append(before, after...))
	b.row("with stacks", "", number(without), number(overhead.Median(with)), number(overhead.Median(with)-without))
	return nil
}
