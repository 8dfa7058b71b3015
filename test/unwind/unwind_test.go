// SPDX-License-Identifier: Apache-2.0

// Package unwind holds the truth test of the in-kernel Python unwinder: at each
// call of a probed function the stack that the kernel took is compared, frame by
// frame, with what sys._getframe() told right before.
package unwind

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf16"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/gpu-gadgets/gpu-gadgets/test/bpftest"
)

const source = "testdata/unwind.bpf.c"

// minors are the CPython 3 versions under test.
var minors = []int{7, 8, 9, 10, 11, 12, 13, 14, 15}

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

// process is the head of struct python_process in bpf/python_process.h.
type process struct {
	Runtime, RetryNs uint64
	Status, Version  uint32
}

func (p *probe) process(id uint64) process {
	b, err := p.Maps["python_by_process"].LookupBytes(id)
	if err != nil || len(b) < 24 {
		return process{}
	}
	return process{
		Runtime: binary.NativeEndian.Uint64(b),
		Status:  binary.NativeEndian.Uint32(b[16:]),
		Version: binary.NativeEndian.Uint32(b[20:]),
	}
}

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
			if real, err := filepath.EvalSymlinks(path); err == nil && !slices.Contains(found, real) {
				found = append(found, real)
			}
		}
	}
	return found
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
func library(t testing.TB) string {
	t.Helper()
	if path, ok := bpftest.Prebuilt(t, "libmark.so"); ok {
		return path
	}
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

func attach(t testing.TB, spec *ebpf.CollectionSpec, program string) *probe {
	t.Helper()
	one := spec.Copy()
	for name := range one.Programs {
		if name != program {
			delete(one.Programs, name)
		}
	}
	p := &probe{library: library(t)}
	file, err := link.OpenExecutable(p.library)
	if err != nil {
		t.Fatal(err)
	}
	var l link.Link
	if multi(t) {
		p.Collection = bpftest.LoadSpec(t, one)
		l, err = file.UprobeMulti([]string{"mark"}, p.Programs[program], nil)
	} else {
		one.Programs[program].AttachType = ebpf.AttachNone
		p.Collection = bpftest.LoadSpec(t, one)
		l, err = file.Uprobe("mark", p.Programs[program], nil)
	}
	if err != nil {
		t.Fatalf("attach: %v", err)
	}
	t.Cleanup(func() { l.Close() })
	return p
}

// multi tells whether the kernel attaches uprobes by link (6.6+).
func multi(t testing.TB) bool {
	t.Helper()
	err := haveMulti()
	if err != nil && !errors.Is(err, ebpf.ErrNotSupported) {
		t.Fatalf("probe for uprobe.multi: %v", err)
	}
	return err == nil
}

var haveMulti = sync.OnceValue(func() error {
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type:         ebpf.Kprobe,
		AttachType:   ebpf.AttachTraceUprobeMulti,
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
		License:      "Dual BSD/GPL",
	})
	if err != nil {
		// Before 6.6 the attach type is an invalid argument.
		return fmt.Errorf("%w: %w", ebpf.ErrNotSupported, err)
	}
	defer prog.Close()
	self, err := link.OpenExecutable("/proc/self/exe")
	if err != nil {
		return err
	}
	l, err := self.UprobeMulti([]string{"main.main"}, prog, nil)
	if err != nil {
		return fmt.Errorf("%w: %w", ebpf.ErrNotSupported, err)
	}
	return l.Close()
})

// run runs the workload to its end and returns the file that it wrote.
func (p *probe) run(t testing.TB, command []string, mode string, samples, first int, more ...string) string {
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
				ID, Runtime uint64
				Frames      [][]any
			}
			if err := json.Unmarshal(lines.Bytes(), &truth); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			var want []frame
			for _, row := range truth.Frames {
				want = append(want, frame{tail(row[0].(string), 128), row[1].(string), tail(row[2].(string), 256), uint32(row[3].(float64))})
			}
			total++
			if err := p.compare(truth.ID, truth.Runtime, want); err != nil {
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

func (p *probe) compare(id, runtime uint64, want []frame) error {
	var m mark
	var s stack
	if err := p.Maps["samples_by_id"].Lookup(id, &m); err != nil {
		return errMissing
	}
	if known := p.process(m.Process); known.Runtime != runtime {
		return fmt.Errorf("_PyRuntime at %x, want %x", known.Runtime, runtime)
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
	if m.Result == 0 && s.Flags == flags && slices.Equal(want, got) {
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

// tail is what the kernel keeps of s in a field of so many bytes, at the width
// that CPython gives all characters of a string: that of its widest.
func tail(s string, bytes int) string {
	runes := []rune(s)
	width := 1
	for _, r := range runes {
		switch {
		case r > 0xffff:
			width = 4
		case r > 0xff:
			width = max(width, 2)
		}
	}
	return string(runes[max(0, len(runes)-bytes/width):])
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

// TestForkedChildWithoutParentEvents is the pre-fork server: the child lacks the
// page tables of clean file mappings, and no earlier event helps.
func TestForkedChildWithoutParentEvents(t *testing.T) {
	bpftest.RequireRoot(t)
	spec := bpftest.Spec(t, source)
	eachInterpreter(t, func(t *testing.T, python string) {
		p := attach(t, spec, "mark_sleepable")
		out := p.run(t, []string{python}, "prefork", 50, 1)
		p.check(t, 50, fmt.Sprintf("%s.%d", out, 1<<24))
	})
}

// TestDeepStackKeepsInnermost: 128 frames are kept, and the flag tells of the cut.
func TestDeepStackKeepsInnermost(t *testing.T) {
	bpftest.RequireRoot(t)
	spec := bpftest.Spec(t, source)
	eachInterpreter(t, func(t *testing.T, python string) {
		p := attach(t, spec, "mark_sleepable")
		p.check(t, 6, p.run(t, []string{python}, "deep", 0, 1))
	})
}

// TestExecGivesAnotherInterpreter: the same pid, first one version, then another.
func TestExecGivesAnotherInterpreter(t *testing.T) {
	bpftest.RequireRoot(t)
	var other string
	for _, minor := range minors {
		if found := interpreters(minor); len(found) > 0 {
			other = found[0]
		}
	}
	if other == "" {
		t.Skip("no python3.7 to python3.15 in ~/.pyenv/versions or PATH")
	}
	spec := bpftest.Spec(t, source)
	eachInterpreter(t, func(t *testing.T, python string) {
		p := attach(t, spec, "mark_sleepable")
		out := p.run(t, []string{python}, "exec", 50, 1, other)
		p.check(t, 100, out, out+".exec")
	})
}

// TestPidNamespace: the pids that the process sees are not the kernel's.
func TestPidNamespace(t *testing.T) {
	bpftest.RequireRoot(t)
	spec := bpftest.Spec(t, source)
	eachInterpreter(t, func(t *testing.T, python string) {
		p := attach(t, spec, "mark_sleepable")
		p.check(t, 50, p.run(t, []string{"unshare", "--pid", "--fork", python}, "few", 50, 1))
	})
}

// TestGreenletShowsTheRunningOne where the module is installed.
func TestGreenletShowsTheRunningOne(t *testing.T) {
	bpftest.RequireRoot(t)
	spec := bpftest.Spec(t, source)
	eachInterpreter(t, func(t *testing.T, python string) {
		if err := exec.Command(python, "-c", "import greenlet").Run(); err != nil {
			t.Skipf("%s cannot import greenlet", python)
		}
		p := attach(t, spec, "mark_sleepable")
		p.check(t, 8, p.run(t, []string{python}, "greenlet", 0, 1))
	})
}

// TestForeignThreads: threads that C made, which have a thread state only during
// a callback, at an address that is used again; and one that never has any.
func TestForeignThreads(t *testing.T) {
	bpftest.RequireRoot(t)
	spec := bpftest.Spec(t, source)
	eachInterpreter(t, func(t *testing.T, python string) {
		p := attach(t, spec, "mark_sleepable")
		p.check(t, 200, p.run(t, []string{python}, "foreign", 200, 1))
		var m mark
		var s stack
		if err := p.Maps["samples_by_id"].Lookup(uint64(1)<<40, &m); err != nil {
			t.Fatal(errMissing)
		}
		if err := p.Maps["stacks_by_id"].Lookup(m.Stack, &s); err != nil {
			t.Fatal(err)
		}
		if s.Flags != flagHasPython || s.PythonCount != 0 || p.dropped(t, dropThread) != 1 {
			t.Errorf("thread without Python: flags %d, %d frames%s; want 1, 0", s.Flags, s.PythonCount, p.drops(t))
		}
	})
}

// TestInterpreterLoadedLater: at first there is no Python in the process.
func TestInterpreterLoadedLater(t *testing.T) {
	bpftest.RequireRoot(t)
	spec := bpftest.Spec(t, source)
	eachInterpreter(t, func(t *testing.T, python string) {
		libs, _ := filepath.Glob(filepath.Join(filepath.Dir(python), "../lib/libpython3.*.so.1.0"))
		if len(libs) == 0 {
			t.Skipf("%s has no libpython3.*.so.1.0 in ../lib", python)
		}
		p := attach(t, spec, "mark_sleepable")
		embed := filepath.Join(t.TempDir(), "embed")
		out, err := exec.Command("cc", "-o", embed, "testdata/embed.c", p.library,
			"-Wl,-rpath,"+filepath.Dir(p.library), "-ldl").CombinedOutput()
		if err != nil {
			t.Fatalf("build testdata/embed.c: %v\n%s", err, out)
		}
		cmd := exec.Command(embed, libs[0], p.library)
		cmd.Env = append(os.Environ(), "PYTHONHOME="+filepath.Dir(filepath.Dir(python)))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		for id, want := range map[uint64][]frame{
			1: nil,
			2: {{"inner", "", "<string>", 3}, {"<module>", "", "<string>", 4}},
		} {
			var m mark
			var s stack
			if err := p.Maps["samples_by_id"].Lookup(id, &m); err != nil {
				t.Fatal(errMissing)
			}
			if err := p.Maps["stacks_by_id"].Lookup(m.Stack, &s); err != nil {
				t.Fatal(err)
			}
			var got []frame
			for _, f := range s.Python[:s.PythonCount] {
				got = append(got, p.frame(f))
			}
			if !slices.Equal(want, got) {
				t.Errorf("sample %d: %v, want %v", id, got, want)
			}
		}
	})
}

// TestSubinterpreter: the thread has a state in two interpreters; the stack is
// that of the one it is in. 3.7 to 3.9 leave no trace of which that is.
func TestSubinterpreter(t *testing.T) {
	bpftest.RequireRoot(t)
	spec := bpftest.Spec(t, source)
	eachInterpreter(t, func(t *testing.T, python string) {
		for _, old := range []string{"3.7", "3.8", "3.9"} {
			if strings.HasSuffix(python, "python"+old) {
				t.Skipf("%s is older than 3.10: no trace of the entry from C", python)
			}
		}
		p := attach(t, spec, "mark_sleepable")
		out := p.run(t, []string{python}, "interpreters", 50, 1)
		p.check(t, 150, out, out+".sub")
	})
}

// TestHostileInterpreter: lists without end, wild pointers, lengths out of
// range. The work is bounded and the outcome is told.
func TestHostileInterpreter(t *testing.T) {
	bpftest.RequireRoot(t)
	spec := bpftest.Spec(t, source)
	for _, c := range []struct {
		kind   string
		flags  uint32
		frames int
		drop   string // counted reason, if any
	}{
		{"interpreters", flagHasPython, 0, dropThread},
		{"threads", flagHasPython, 0, dropThread},
		{"frames", flagHasPython | flagTruncated, 128, ""},
		{"wild", flagHasPython | flagIncomplete, 1, dropFault},
		{"kernel", flagHasPython | flagIncomplete, 1, dropFault},
		{"code", flagHasPython, 1, dropFault},
		{"string", flagHasPython, 1, ""},
		{"length", flagHasPython, 1, dropFault},
		{"table", flagHasPython, 1, ""},
		{"instruction", flagHasPython, 1, ""},
		{"version", 0, 0, dropUnsupported},
		{"cookie", 0, 0, dropUnsupported},
	} {
		for _, program := range []string{"mark_sleepable", "mark_atomic"} {
			t.Run(c.kind+"/"+program, func(t *testing.T) {
				p := attach(t, spec, program)
				liar := filepath.Join(t.TempDir(), "liar")
				out, err := exec.Command("cc", "-rdynamic", "-o", liar, "testdata/hostile.c", p.library,
					"-Wl,-rpath,"+filepath.Dir(p.library), "-lpthread").CombinedOutput()
				if err != nil {
					t.Fatalf("build testdata/hostile.c: %v\n%s", err, out)
				}
				start := time.Now()
				if out, err := exec.Command(liar, c.kind).CombinedOutput(); err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
				if took := time.Since(start); took > 2*time.Second {
					t.Errorf("took %v", took)
				}
				for id := uint64(1); id <= 2; id++ {
					var m mark
					var s stack
					if err := p.Maps["samples_by_id"].Lookup(id, &m); err != nil {
						t.Fatal(errMissing)
					}
					if err := p.Maps["stacks_by_id"].Lookup(m.Stack, &s); err != nil {
						t.Fatal(err)
					}
					if s.Flags != c.flags || int(s.PythonCount) != c.frames {
						t.Errorf("sample %d: flags %d, %d frames; want %d, %d", id, s.Flags, s.PythonCount, c.flags, c.frames)
					}
				}
				if c.drop != "" && p.dropped(t, c.drop) == 0 {
					t.Errorf("not counted as %s%s", c.drop, p.drops(t))
				}
			})
		}
	}
}

// Enumerators of drop_reason, bpf/drops.h.
const (
	dropFault       = "DROP_PYTHON_FAULT"
	dropUnsupported = "DROP_PYTHON_UNSUPPORTED"
	dropThread      = "DROP_PYTHON_THREAD"
)

// dropReasons is the table of bpf/drops.h in its order. The enum itself is not in
// an object's BTF: no variable has its type.
var dropReasons = sync.OnceValues(func() ([]string, error) {
	header, err := os.ReadFile("../../bpf/drops.h")
	if err != nil {
		return nil, err
	}
	names := []string{"DROP_NONE"}
	for _, row := range regexp.MustCompile(`X\((DROP_\w+),`).FindAllSubmatch(header, -1) {
		names = append(names, string(row[1]))
	}
	return names, nil
})

// dropped is how often a reason was counted.
func (p *probe) dropped(t *testing.T, reason string) uint64 {
	t.Helper()
	reasons, err := dropReasons()
	if err != nil {
		t.Fatal(err)
	}
	key := slices.Index(reasons, reason)
	if key < 0 {
		t.Fatalf("bpf/drops.h has no %s", reason)
	}
	var value struct{ Count, Bytes uint64 }
	if err := p.Maps["drops_by_reason"].Lookup(uint32(key), &value); err != nil {
		t.Fatal(err)
	}
	return value.Count
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

// BenchmarkUnwind reports the time of the whole probe program per call, as the
// kernel measures it: unwinding, hashing the stack and looking it up. With depth=
// everything is cached.
func BenchmarkUnwind(b *testing.B) {
	bpftest.RequireRoot(b)
	spec := bpftest.Spec(b, source)
	stats, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
	if err != nil {
		b.Fatal(err)
	}
	defer stats.Close()
	for _, minor := range minors {
		found := interpreters(minor)
		if len(found) == 0 {
			continue
		}
		for _, program := range []string{"mark_sleepable", "mark_atomic"} {
			for _, c := range []struct {
				name, mode string
				samples    int
			}{
				{"depth=4", "measure", 4},
				{"depth=10", "measure", 10},
				{"depth=50", "measure", 50},
				{"depth=100", "measure", 100},
				{"first", "few", 1},  // an interpreter not seen before
				{"mix", "few", 5000}, // much of the code is made anew at each call
			} {
				b.Run(fmt.Sprintf("3.%d/%s/%s", minor, program, c.name), func(b *testing.B) {
					p := attach(b, spec, program)
					for range b.N {
						p.run(b, found[:1], c.mode, c.samples, 0)
					}
					stats, err := p.Programs[program].Stats()
					if err != nil {
						b.Fatal(err)
					}
					b.ReportMetric(0, "ns/op")
					b.ReportMetric(float64(stats.Runtime.Nanoseconds())/float64(stats.RunCount), "ns/stack")
				})
			}
		}
	}
}
