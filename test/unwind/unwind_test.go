// SPDX-License-Identifier: Apache-2.0

// Package unwind holds the truth test of the in-kernel Python unwinder: at each
// call of a probed function the stack that the kernel took is compared, frame by
// frame, with what sys._getframe() told right before.
package unwind

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf16"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/gpu-gadgets/gpu-gadgets/test/bpftest"
)

const source = "testdata/unwind.bpf.c"

// minors are the CPython 3 versions under test.
var minors = []int{7, 8, 9, 10, 11, 12, 13, 14}

// The structs of bpf/stack.h and testdata/unwind.bpf.c.
type (
	mark struct {
		Process uint64
		Stack   uint64
		Result  int64
	}
	pythonFrame struct {
		Symbol uint64
		Line   uint32
		Flags  uint32
	}
	stack struct {
		Flags       uint32
		NativeCount uint16
		PythonCount uint16
		Native      [32]uint64
		Python      [128]pythonFrame
	}
	symbol struct {
		FirstLine                  uint32
		NameLen, FileLen, ClassLen uint16
		NameKind, FileKind         uint8
		Cut                        uint8
		NameIsQualname             uint8
		_                          [4]uint8
		Name                       [128]byte
		File                       [256]byte
		Class                      [64]byte
		_                          [2]byte
	}
)

const (
	flagHasPython  = 1
	flagTruncated  = 2
	flagIncomplete = 4
)

// frame is what both sides say of one frame.
type frame struct {
	name, class, file string
	line              uint32
}

// interpreters returns the executables of CPython 3.minor on this machine.
func interpreters(minor int) []string {
	var found []string
	name := fmt.Sprintf("python3.%d", minor)
	if home, err := os.UserHomeDir(); err == nil {
		found, _ = filepath.Glob(filepath.Join(home, ".pyenv/versions", fmt.Sprintf("3.%d.*", minor), "bin", name))
	}
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err == nil && !strings.Contains(path, "shims") && len(found) < 3 {
			if real, err := filepath.EvalSymlinks(path); err == nil && !contains(found, real) {
				found = append(found, real)
			}
		}
	}
	return found
}

func contains(list []string, s string) bool {
	for _, e := range list {
		if e == s {
			return true
		}
	}
	return false
}

// eachInterpreter runs f as a subtest per version and build.
func eachInterpreter(t *testing.T, f func(t *testing.T, python string)) {
	for _, minor := range minors {
		found := interpreters(minor)
		if len(found) == 0 {
			t.Run(fmt.Sprintf("3.%d", minor), func(t *testing.T) {
				t.Skipf("python3.%d is neither in ~/.pyenv/versions nor in PATH", minor)
			})
		}
		for _, python := range found {
			name := fmt.Sprintf("3.%d", minor)
			if !strings.Contains(python, ".pyenv") {
				name += "-system"
			}
			t.Run(name, func(t *testing.T) { f(t, python) })
		}
	}
}

// library builds the shared object whose function is probed.
func library(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "libmark.so")
	out, err := exec.Command("cc", "-O1", "-shared", "-fPIC", "-o", path, "testdata/mark.c").CombinedOutput()
	if err != nil {
		t.Fatalf("build testdata/mark.c: %v\n%s", err, out)
	}
	return path
}

// probe is one loaded and attached unwinder.
type probe struct {
	*ebpf.Collection
	library string
}

func attach(t *testing.T, spec *ebpf.CollectionSpec, program string) *probe {
	t.Helper()
	one := spec.Copy()
	for name := range one.Programs {
		if name != program {
			delete(one.Programs, name)
		}
	}
	p := &probe{Collection: bpftest.LoadSpec(t, one), library: library(t)}
	file, err := link.OpenExecutable(p.library)
	if err != nil {
		t.Fatal(err)
	}
	l, err := file.UprobeMulti([]string{"mark"}, p.Programs[program], nil)
	if err != nil {
		t.Fatalf("attach: %v", err)
	}
	t.Cleanup(func() { l.Close() })
	return p
}

// run runs the workload to its end and returns the file that it wrote.
func (p *probe) run(t *testing.T, command []string, mode string, samples, first int, more ...string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), mode)
	args := append(command[1:len(command):len(command)], "testdata/workload.py", mode, p.library, out,
		fmt.Sprint(samples), fmt.Sprint(first))
	cmd := exec.Command(command[0], append(args, more...)...)
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, text)
	}
	return out
}

// check compares the samples of a workload with the kernel's, and returns how
// many there were. At least `least` must have been taken.
func (p *probe) check(t *testing.T, least int, files ...string) {
	t.Helper()
	total, wrong := 0, 0
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		lines := bufio.NewScanner(f)
		lines.Buffer(nil, 1<<24)
		for lines.Scan() {
			var truth struct {
				ID     uint64
				Frames [][]any
			}
			if err := json.Unmarshal(lines.Bytes(), &truth); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			var want []frame
			for _, row := range truth.Frames {
				want = append(want, frame{row[0].(string), row[1].(string), row[2].(string), uint32(row[3].(float64))})
			}
			total++
			if err := p.compare(truth.ID, want); err != nil {
				if wrong++; wrong <= 3 {
					t.Errorf("sample %d: %v", truth.ID, err)
				}
			}
		}
	}
	if wrong > 0 {
		t.Errorf("%d of %d samples differ", wrong, total)
	}
	if total < least {
		t.Errorf("%d samples, want at least %d", total, least)
	}
	t.Logf("%d of %d samples exact%s", total-wrong, total, p.drops(t))
}

func (p *probe) drops(t *testing.T) string {
	var text string
	var key uint32
	var value struct{ Count, Bytes uint64 }
	for it := p.Maps["drops_by_reason"].Iterate(); it.Next(&key, &value); {
		if value.Count > 0 {
			text += fmt.Sprintf("; drop reason %d: %d", key, value.Count)
		}
	}
	return text
}

var errMissing = errors.New("the kernel took no such sample")

func (p *probe) compare(id uint64, want []frame) error {
	var m mark
	var s stack
	if err := p.Maps["samples_by_id"].Lookup(id, &m); err != nil {
		return errMissing
	}
	if err := p.Maps["stacks_by_id"].Lookup(m.Stack, &s); err != nil {
		return fmt.Errorf("stack %x: %w", m.Stack, err)
	}
	var flags uint32 = flagHasPython
	if len(want) > len(s.Python) {
		want = want[:len(s.Python)]
		flags |= flagTruncated
	}
	var got []frame
	for _, f := range s.Python[:s.PythonCount] {
		got = append(got, p.frame(f))
	}
	if m.Result == 0 && s.Flags == flags && equal(want, got) {
		return nil
	}
	var text strings.Builder
	fmt.Fprintf(&text, "result %d, flags %d (want %d), %d frames (want %d), process %x",
		m.Result, s.Flags, flags, len(got), len(want), m.Process)
	for i := 0; i < len(want) || i < len(got); i++ {
		var w, g frame
		if i < len(want) {
			w = want[i]
		}
		if i < len(got) {
			g = got[i]
		}
		if w != g {
			fmt.Fprintf(&text, "\n  frame %d\n    want %v\n    got  %v", i, w, g)
		}
	}
	return errors.New(text.String())
}

// equal compares name, class, file and line; a name that was cut is compared by
// its tail.
func equal(want, got []frame) bool {
	if len(want) != len(got) {
		return false
	}
	for i := range want {
		if want[i] != got[i] {
			return false
		}
	}
	return true
}

func (p *probe) frame(f pythonFrame) frame {
	var s symbol
	if err := p.Maps["symbols_by_id"].Lookup(f.Symbol, &s); err != nil {
		return frame{name: fmt.Sprintf("symbol %x: %v", f.Symbol, err), line: f.Line}
	}
	return frame{
		name:  text(s.Name[:s.NameLen], s.NameKind),
		class: string(s.Class[:s.ClassLen]),
		file:  text(s.File[:s.FileLen], s.FileKind),
		line:  f.Line,
	}
}

// text decodes the interpreter's own encoding: 1, 2 or 4 bytes per character.
func text(b []byte, kind uint8) string {
	var runes []rune
	for i := 0; i+int(kind) <= len(b); i += int(kind) {
		var r rune
		for j := 0; j < int(kind); j++ {
			r |= rune(b[i+j]) << (8 * j)
		}
		runes = append(runes, r)
	}
	if kind == 2 {
		units := make([]uint16, len(runes))
		for i, r := range runes {
			units[i] = uint16(r)
		}
		runes = utf16.Decode(units)
	}
	return string(runes)
}

// TestFramesEqualGetframe is the truth test: methods, closures, generators,
// comprehensions, callbacks from C, exec'd code, wide names, tracing; six
// threads, and a forked child.
func TestFramesEqualGetframe(t *testing.T) {
	bpftest.RequireRoot(t)
	spec := bpftest.Spec(t, source)
	eachInterpreter(t, func(t *testing.T, python string) {
		for _, program := range []string{"mark_sleepable", "mark_atomic"} {
			t.Run(program, func(t *testing.T) {
				p := attach(t, spec, program)
				out := p.run(t, []string{python}, "mix", 6000, 1)
				p.check(t, 5000, out, fmt.Sprintf("%s.%d", out, 1<<24))
			})
		}
	})
}

// TestVerifierCost keeps the unwinder cheap to load: three programs carry it.
func TestVerifierCost(t *testing.T) {
	bpftest.RequireRoot(t)
	spec := bpftest.Spec(t, source)
	for name := range spec.Programs {
		t.Run(name, func(t *testing.T) {
			one := spec.Copy()
			for other := range one.Programs {
				if other != name {
					delete(one.Programs, other)
				}
			}
			start := time.Now()
			coll := bpftest.LoadSpec(t, one)
			took := time.Since(start)
			info, err := coll.Programs[name].Info()
			if err != nil {
				t.Fatal(err)
			}
			verified, ok := info.VerifiedInstructions()
			if !ok {
				t.Skip("the kernel does not tell the number of verified instructions (5.16+)")
			}
			t.Logf("%d instructions verified, loaded in %v", verified, took.Round(time.Millisecond))
			if verified > 100_000 {
				t.Errorf("%d instructions verified, want at most 100000", verified)
			}
		})
	}
}
