// SPDX-License-Identifier: Apache-2.0

// Package pystack has the truth tests of the gadget py_stack: the stacks that its
// programs read from a process are compared with those that the process itself reports.
package pystack

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/selection"
	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
	"github.com/gpu-gadgets/gpu-gadgets/operators/decode/pystack"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/bpftest"
)

const source = "../../../gadgets/py_stack/program.bpf.c"

// enum mode of the program.
const (
	onCPU = 0
	dump  = 1
	wall  = 2
)

type rowKey struct {
	Process, Stack uint64
	TID, _         uint32
}

type row struct{ Samples, GIL uint64 }

// frame is one frame, as both sides report it.
type frame struct {
	name, file string
	line       uint32
}

// The gadget is compiled once for all tests.
var (
	compileOnce sync.Once
	compiled    *ebpf.CollectionSpec
)

// load loads the gadget for one mode and one process. Names of constants are true.
func load(t testing.TB, mode uint32, pid int, names ...string) *ebpf.Collection {
	t.Helper()
	bpftest.RequireRoot(t)
	compileOnce.Do(func() { compiled = bpftest.Spec(t, source, "-mcpu=v3") })
	if compiled == nil {
		t.Fatal("the gadget does not compile; an earlier test says why")
	}
	spec := compiled.Copy()
	if err := spec.Variables["py_mode"].Set(mode); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if err := spec.Variables[name].Set(true); err != nil {
			t.Fatal(err)
		}
	}
	c := bpftest.LoadSpec(t, spec)
	if err := selection.Restrict(c.Maps[selection.InForceMap], c.Maps[selection.SelectedMap], "/proc", []uint32{uint32(pid)}); err != nil {
		t.Fatal(err)
	}
	return c
}

// pythons are the interpreters under test: CPython 3.7 to 3.13 of pyenv, or the
// python3 of PATH.
func pythons(t testing.TB) []string {
	t.Helper()
	var found []string
	if home, err := os.UserHomeDir(); err == nil {
		for minor := 7; minor <= 15; minor++ {
			some, _ := filepath.Glob(filepath.Join(home, ".pyenv/versions", fmt.Sprintf("3.%d.*", minor), "bin", fmt.Sprintf("python3.%d", minor)))
			found = append(found, some...)
		}
	}
	if len(found) == 0 {
		python, err := exec.LookPath("python3")
		if err != nil {
			t.Fatal("python3 is not in PATH, and ~/.pyenv has no version from 3.7 on")
		}
		found = append(found, python)
	}
	return found
}

// workload is a running script of testdata.
type workload struct {
	*exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

func start(t testing.TB, command ...string) *workload {
	t.Helper()
	w := &workload{Cmd: exec.Command(command[0], command[1:]...)}
	w.Stderr = os.Stderr
	in, err := w.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := w.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	w.in, w.out = in, bufio.NewScanner(out)
	w.out.Buffer(nil, 1<<24)
	if err := w.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		_ = w.Process.Kill()
		_ = w.Wait()
	})
	return w
}

// hold stops the program while a test prepares, so that one that computes all the time does not
// use the processor for it.
func (w *workload) hold(t testing.TB) (resume func()) {
	t.Helper()
	send := func(s unix.Signal) {
		if err := w.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	send(unix.SIGSTOP)
	return func() { send(unix.SIGCONT) }
}

func (w *workload) read(t testing.TB, into any) {
	t.Helper()
	if !w.out.Scan() {
		t.Fatalf("%v said nothing: %v", w.Args, w.out.Err())
	}
	if into != nil {
		if err := json.Unmarshal(w.out.Bytes(), into); err != nil {
			t.Fatalf("%v: %v", w.Args, err)
		}
	}
}

// threads runs the iterator once.
func threads(t testing.TB, c *ebpf.Collection) map[uint32]pystack.Record {
	t.Helper()
	l, err := link.AttachIter(link.IterOptions{Program: c.Programs["threads"]})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	r, err := l.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	records, err := pystack.Decode(b)
	if err != nil {
		t.Fatal(err)
	}
	found := map[uint32]pystack.Record{}
	for _, one := range records {
		found[one.TID] = one
	}
	return found
}

func frames(t testing.TB, c *ebpf.Collection, id uint64) []frame {
	t.Helper()
	b, err := c.Maps["stacks_by_id"].LookupBytes(id)
	if err != nil || b == nil {
		t.Fatalf("stack %x: %v", id, err)
	}
	raw, err := stack.DecodeStack(b)
	if err != nil {
		t.Fatal(err)
	}
	var out []frame
	for _, p := range raw.Python {
		b, err := c.Maps["symbols_by_id"].LookupBytes(p.Symbol)
		if err != nil || b == nil {
			t.Fatalf("symbol %x: %v", p.Symbol, err)
		}
		symbol, err := stack.DecodeSymbol(b)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, frame{symbol.Function, symbol.File, p.Line})
	}
	return out
}

// TestRecordIsTheKernels compares the operator's mirror of a thread with the
// compiled gadget.
func TestRecordIsTheKernels(t *testing.T) {
	var c *btf.Struct
	if err := bpftest.Spec(t, source, "-mcpu=v3").Types.TypeByName("thread_record", &c); err != nil {
		t.Fatal(err)
	}
	mirror := reflect.TypeFor[pystack.Record]()
	if c.Size != uint32(mirror.Size()) || len(c.Members) != mirror.NumField() {
		t.Fatalf("%d bytes in %d members, the mirror has %d in %d", c.Size, len(c.Members), mirror.Size(), mirror.NumField())
	}
	for n, m := range c.Members {
		f := mirror.Field(n)
		if uint32(f.Offset) != m.Offset.Bytes() {
			t.Errorf("%s is at %d, %s of the mirror at %d", m.Name, m.Offset.Bytes(), f.Name, f.Offset)
		}
		plain := strings.ReplaceAll(m.Name, "_", "")
		if plain = strings.Replace(plain, "mntnsid", "mountns", 1); !strings.EqualFold(plain, f.Name) {
			t.Errorf("member %d is %s, in the mirror %s", n, m.Name, f.Name)
		}
	}
}

// truth reads the report of threads.py about its threads.
func truth(t testing.TB, w *workload) map[uint32][]frame {
	t.Helper()
	var said struct{ Truth map[uint32][][]any }
	w.read(t, &said)
	out := map[uint32][]frame{}
	for tid, rows := range said.Truth {
		for _, r := range rows {
			out[tid] = append(out[tid], frame{r[0].(string), r[1].(string), uint32(r[2].(float64))})
		}
	}
	return out
}

// TestDumpEqualsCurrentFrames: 200 threads asleep in futex, poll and read, each
// stack as sys._current_frames() has it, and each in the system call it is in.
func TestDumpEqualsCurrentFrames(t *testing.T) {
	const count = 200
	for _, python := range pythons(t) {
		t.Run(filepath.Base(python), func(t *testing.T) {
			w := start(t, python, "testdata/threads.py", fmt.Sprint(count))
			want := truth(t, w)
			if len(want) != count {
				t.Fatalf("%d threads, want %d", len(want), count)
			}
			c := load(t, dump, w.Process.Pid)
			began := time.Now()
			got := threads(t, c)
			t.Logf("%d threads in %v", len(got), time.Since(began))
			if len(got) != count+1 {
				t.Errorf("%d threads in the dump, want %d and the main one", len(got), count)
			}
			calls := map[int32]int{}
			for tid, frames_ := range want {
				one, ok := got[tid]
				if !ok {
					t.Errorf("thread %d is not in the dump", tid)
					continue
				}
				calls[one.Syscall]++
				// As the kernel reports it; the longest names are cut.
				kernels, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/wchan", w.Process.Pid, tid))
				if err != nil {
					t.Fatal(err)
				}
				if is := unix.ByteSliceToString(one.Wchan[:]); is == "" || !strings.HasPrefix(string(kernels), is) {
					t.Errorf("thread %d sleeps in %q, the kernel says %q", tid, is, kernels)
				}
				if one.State != 3 || one.Moved != 0 {
					t.Errorf("thread %d: state %d, moved %d: want asleep and unmoved", tid, one.State, one.Moved)
				}
				if got := frames(t, c, one.StackID); !slices.Equal(got, frames_) {
					t.Errorf("thread %d:\n got  %v\n want %v", tid, got, frames_)
				}
			}
			for name, call := range map[string]int32{"poll": sysPoll, "read": unix.SYS_READ, "futex": unix.SYS_FUTEX} {
				if calls[call] < count/3 {
					t.Errorf("%d threads in %s, want %d; all: %v", calls[call], name, count/3, calls)
				}
			}
			again := threads(t, c)
			for tid := range want {
				if again[tid].StackID != got[tid].StackID {
					t.Errorf("thread %d: the second dump has another stack", tid)
				}
			}
		})
	}
}

// TestDumpLeavesOthersOut: a process without an interpreter has no threads.
func TestDumpLeavesOthersOut(t *testing.T) {
	w := start(t, "sleep", "60")
	if got := threads(t, load(t, dump, w.Process.Pid)); len(got) != 0 {
		t.Errorf("threads of sleep: %v", got)
	}
}

// TestDumpOfAnEndedProcess: a selected process that has ended has no threads.
func TestDumpOfAnEndedProcess(t *testing.T) {
	w := start(t, pythons(t)[0], "testdata/threads.py", "3")
	truth(t, w)
	c := load(t, dump, w.Process.Pid)
	_ = w.Process.Kill()
	_ = w.Wait()
	if got := threads(t, c); len(got) != 0 {
		t.Errorf("threads of an ended process: %v", got)
	}
	if err := selection.Restrict(c.Maps[selection.InForceMap], c.Maps[selection.SelectedMap], "/proc", []uint32{uint32(w.Process.Pid)}); err == nil {
		t.Error("a process that has ended can be selected")
	}
}
