// SPDX-License-Identifier: Apache-2.0

package native

import (
	"debug/elf"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/simulated"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/tracer"
)

// functions are those of a library in a process.
type functions struct {
	base    uint64
	symbols []elf.Symbol
}

func functionsOf(t *testing.T, library, mapping string) functions {
	t.Helper()
	fields := strings.Fields(mapping)
	begin, _, _ := strings.Cut(fields[0], "-")
	base, err := strconv.ParseUint(begin, 16, 64)
	require.NoError(t, err)
	require.Equal(t, "00000000", fields[2], "the first mapping of the library")
	f, err := elf.Open(library)
	require.NoError(t, err)
	defer f.Close()
	symbols, err := f.Symbols()
	require.NoError(t, err)
	return functions{base, symbols}
}

// name of the function that a call returns to; empty: it is not of the library.
func (f functions) name(address uint64) string {
	for _, s := range f.symbols {
		if at := address - 1 - f.base; s.Size > 0 && s.Value <= at && at < s.Value+s.Size {
			return s.Name
		}
	}
	return ""
}

// order is a stack as between.py prints one, leaf first: Python frames, by the last part of their name,
// and functions of its library.
func (f functions) order(r tracer.Row) string {
	var s []string
	native, python := 0, 0
	for _, run := range append(slices.Clone(r.Runs), stack.Run{Native: len(r.Native), Python: len(r.Python)}) {
		for ; native < run.Native; native++ {
			if name := f.name(r.Native[native]); name != "" {
				s = append(s, name)
			}
		}
		for range run.Python {
			if python < len(r.Python) {
				s = append(s, lastPart(r.Python[python].Function))
				python++
			}
		}
	}
	return strings.Join(s, " ")
}

func lastPart(function string) string { return function[strings.LastIndexByte(function, '.')+1:] }

// isCrossing: it is a function of between.c that calls Python.
func isCrossing(function string) bool { return strings.HasPrefix(function, "crossing_") }

// withoutOuter are the stacks that a known one may be taken as when its walk ended early: the outer
// functions of C are missing.
func withoutOuter(known string) []string {
	frames := strings.Fields(known)
	var all []string
	for i := len(frames) - 1; i >= 0; i-- {
		if isCrossing(frames[i]) {
			frames = slices.Delete(slices.Clone(frames), i, i+1)
			all = append(all, strings.Join(frames, " "))
		}
	}
	return all
}

func manyPythons(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(os.Getenv("HOME"), ".pyenv/versions/3.*/bin/python3"))
	require.NoError(t, err)
	system, err := exec.LookPath("/usr/bin/python3")
	if err == nil {
		found = append(found, system)
	}
	require.NotEmpty(t, found)
	return found
}

// TestNativeFramesBetweenPythonFramesStayInOrder, as the program knows it.
func TestNativeFramesBetweenPythonFramesStayInOrder(t *testing.T) {
	const calls = 400
	driver := simulated.Driver(t)
	library := filepath.Join(t.TempDir(), "between.so")
	out, err := exec.Command("gcc", "-O2", "-fomit-frame-pointer", "-shared", "-fPIC", "-o", library, "testdata/between.c", "-ldl").CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, python := range manyPythons(t) {
		version, err := exec.Command(python, "-c", "import ctypes, sys; print('%d.%d.%d' % sys.version_info[:3])").Output()
		require.NoError(t, err, python)
		name := strings.TrimSpace(string(version))
		minor, err := strconv.Atoi(strings.Split(name, ".")[1])
		require.NoError(t, err)
		if minor < 7 {
			continue
		}
		t.Run(name, func(t *testing.T) {
			tr, _ := start(t, driver, memory)
			p := run(t, python, "testdata/between.py", library, driver, strconv.Itoa(calls))
			_, err := io.WriteString(p.in, "\n")
			require.NoError(t, err)
			require.Equal(t, "warm", p.line(t))
			warm := map[uint64]uint64{}
			for _, r := range tr.Rows() {
				warm[r.StackID] += r.AllocObjects
			}
			known := p.goOn(t)
			f := functionsOf(t, library, strings.TrimPrefix(p.line(t), "at "))
			v := f.compare(t, tr.Rows(), warm, known)
			t.Logf("%d stacks of %d calls: %d in order, %d with native frames between Python frames, %d of which are cut, %d wrong", len(known), v.calls, v.whole, v.between, v.cut, v.wrong)
			assert.Equal(t, 3*calls, v.calls)
			assert.Zero(t, v.wrong)
			if minor >= 10 {
				assert.Greater(t, v.between, calls)
				assert.Less(t, v.cut, v.calls/20)
			}
		})
	}
}

// verdict counts calls.
type verdict struct{ calls, whole, between, cut, wrong int }

// compare looks up what is more than in warm. Ways that differ only before line numbers are one.
func (f functions) compare(t *testing.T, rows []tracer.Row, warm map[uint64]uint64, known paths) verdict {
	t.Helper()
	var v verdict
	normal, early := paths{}, map[string]bool{}
	for way, n := range known {
		var frames []string
		for _, frame := range strings.Fields(way) {
			frames = append(frames, lastPart(frame))
		}
		way = strings.Join(frames, " ")
		normal[way] += n
		for _, text := range withoutOuter(way) {
			early[text] = true
		}
	}
	seen := paths{}
	for _, r := range rows {
		n := int(r.AllocObjects - warm[r.StackID])
		if n == 0 || r.Kind == tracer.KindContext {
			continue
		}
		v.calls += n
		way := f.order(r)
		if len(r.Runs) > 0 {
			v.between += n
		}
		switch {
		case normal[way] > 0:
			v.whole += n
			seen[way] += n
		case early[way]:
			v.cut += n
		default:
			if v.wrong += n; v.wrong < 4 {
				assert.Fail(t, "wrong order", "%s", fmt.Sprintf("flags %#x, runs %v of %d native and %d Python frames: %s\nnearest: %s", r.Flags, r.Runs, len(r.Native), len(r.Python), way, nearest(way, normal)))
			}
		}
	}
	for way, n := range seen {
		assert.LessOrEqual(t, n, normal[way], way)
	}
	return v
}
