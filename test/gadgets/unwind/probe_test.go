// SPDX-License-Identifier: Apache-2.0

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
	"sync"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/bpftest"
)

const source = "testdata/unwind.bpf.c"

// The structs of bpf/stack/stack.h and testdata/unwind.bpf.c.
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
		Native      [64]uint64
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

// process is the head of struct python_process in bpf/python/runtime/state.h.
type process struct {
	Runtime, RetryNs uint64
	Status, Version  uint32
}

// statusUnreadable is PYTHON_UNREADABLE of the same file.
const statusUnreadable = 4

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

// frame is one frame, as both sides report it.
type frame struct {
	name, class, file string
	line              uint32
}

// compiled is the eBPF program, compiled once for all tests.
var compiled struct {
	sync.Once
	*ebpf.CollectionSpec
}

func unwinder(t testing.TB) *ebpf.CollectionSpec {
	t.Helper()
	compiled.Do(func() { compiled.CollectionSpec = bpftest.Spec(t, source) })
	if compiled.CollectionSpec == nil {
		t.Fatal("compile " + source + ": failed before")
	}
	return compiled.CollectionSpec
}

// build compiles a C program or library of testdata.
func build(t testing.TB, to string, arguments ...string) string {
	t.Helper()
	arguments = append([]string{"-O1", "-o", to}, arguments...)
	if out, err := exec.Command("cc", arguments...).CombinedOutput(); err != nil {
		t.Fatalf("cc %v: %v\n%s", arguments, err, out)
	}
	return to
}

// library builds the shared object whose function is probed. It requires no version of
// the C library, so that it can be loaded in every root.
func library(t testing.TB) string {
	t.Helper()
	if path, ok := bpftest.Prebuilt(t, "libmark.so"); ok {
		return path
	}
	return build(t, filepath.Join(t.TempDir(), "libmark.so"), "-shared", "-fPIC", "-nostdlib", "testdata/mark.c")
}

// probe is one loaded and attached unwinder.
type probe struct {
	*ebpf.Collection
	library string
	// mayMiss: the program cannot wait for a page that is not in memory, which is counted.
	mayMiss bool
}

func attach(t testing.TB, spec *ebpf.CollectionSpec, program string) *probe {
	t.Helper()
	one := spec.Copy()
	for name := range one.Programs {
		if name != program {
			delete(one.Programs, name)
		}
	}
	p := &probe{library: library(t), mayMiss: program == "mark_atomic"}
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

// multi reports whether the kernel attaches uprobes by link (6.6+).
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
func (p *probe) run(t testing.TB, python interpreter, mode string, samples, first int, more ...string) string {
	t.Helper()
	workload, err := filepath.Abs("testdata/workload.py")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	out := filepath.Join(dir, mode)
	args := append([]string{workload, mode, p.library, out, fmt.Sprint(samples), fmt.Sprint(first)}, more...)
	cmd := python.command([]string{filepath.Dir(workload), filepath.Dir(p.library), dir}, args...)
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, text)
	}
	return out
}

// check compares the samples of a workload with those taken in the kernel, and returns
// their number. There must be at least `least`.
func (p *probe) check(t *testing.T, least int, files ...string) {
	t.Helper()
	p.checkBut(t, least, 0, files...)
}

// checkBut is check with at most so many samples that may differ.
func (p *probe) checkBut(t *testing.T, least, allowed int, files ...string) {
	t.Helper()
	total, wrong, unread := 0, 0, 0
	report := t.Errorf
	if allowed > 0 {
		report = t.Logf
	}
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
			err := p.compare(truth.ID, truth.Runtime, want)
			if errors.Is(err, errUnread) && p.mayMiss {
				unread++
			} else if err != nil {
				if wrong++; wrong <= 3 {
					report("sample %d: %v", truth.ID, err)
				}
			}
		}
	}
	if wrong > allowed {
		t.Errorf("%d of %d samples differ, at most %d may", wrong, total, allowed)
	}
	if total < least {
		t.Errorf("%d samples, want at least %d", total, least)
	}
	if unread > total/missesInAll {
		t.Errorf("%d of %d samples miss a page, more than one in %d", unread, total, missesInAll)
	}
	if unread > 0 && p.dropped(t, dropFault) < uint64(unread) {
		t.Errorf("%d samples miss a page, which is not counted%s", unread, p.drops(t))
	}
	t.Logf("%s: %d of %d samples exact%s", t.Name(), total-wrong-unread, total, p.drops(t))
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

var (
	errMissing = errors.New("the kernel took no such sample")
	errUnread  = errors.New("a page is not in memory: what could be read is right, and the rest is counted as lost")
)

// missesInAll: one sample in so many may miss a page. On arm64 the kernel ages pages by making accesses fault.
const missesInAll = 1000
