// SPDX-License-Identifier: Apache-2.0

package pystack

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gpu-gadgets/gpu-gadgets/internal/ig"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/selection"
	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
	"github.com/gpu-gadgets/gpu-gadgets/internal/tracer/unwinder"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/bpftest"
)

// cuts are the flags of a stack whose native frames are incomplete.
const cuts = stack.NativeTruncated | stack.NativeNoRules | stack.NativeNotLoaded | stack.NativeBroken |
	stack.NativeUnreadable | stack.NativeBusy

// loadNative loads the gadget for one process, with rules, which are read until the end of the test.
func loadNative(t testing.TB, mode uint32, pid int) (*ebpf.Collection, *unwinder.Unwinder) {
	t.Helper()
	bpftest.RequireRoot(t)
	compileOnce.Do(func() { compiled = bpftest.Spec(t, source, "-mcpu=v3") })
	require.NotNil(t, compiled, "the gadget does not compile; an earlier test says why")
	spec := compiled.Copy()
	require.NoError(t, spec.Variables["py_mode"].Set(mode))
	require.NoError(t, spec.Variables[unwinder.OnConstant].Set(unwinder.All))
	require.NoError(t, spec.Variables[unwinder.PageShiftConstant].Set(ig.PageShift()))
	unwinder.Enlarge(spec.Maps, 64<<20)
	c := bpftest.LoadSpec(t, spec)
	require.NoError(t, selection.Restrict(c.Maps[selection.InForceMap], c.Maps[selection.SelectedMap], "/proc", []uint32{uint32(pid)}))
	u, err := unwinder.New(unwinder.Config{Pages: c.Maps[unwinder.PagesMap], Asked: c.Maps[unwinder.AskedMap], Misses: c.Maps[unwinder.MissesMap]})
	require.NoError(t, err)
	require.NoError(t, u.Start(context.Background()))
	t.Cleanup(u.Stop)
	return c, u
}

// spun is a running spins.py.
type spun struct {
	*workload
	// spins and inner are the addresses of the functions of scenes, by their number, and of those
	// that they call; interpreter are those of Python.
	spins       map[int]span
	inner       []span
	interpreter []span
	// calls are the stacks of a scene, leaf first: see allowed.
	calls map[int][][]uint64
}

type span struct{ from, to uint64 }

func (s span) has(at uint64) bool { return s.from <= at && at < s.to }

// spinsOf has the contents of the compiled spins.cpp, by flags: two tests use each.
var spinsOf = map[string][]byte{}

// spins is a file with the library, of this test alone.
func spins(t testing.TB, flags []string) (library string) {
	t.Helper()
	library = filepath.Join(t.TempDir(), "spins.so")
	key := strings.Join(flags, " ")
	if content, ok := spinsOf[key]; ok {
		require.NoError(t, os.WriteFile(library, content, 0o755))
		return library
	}
	args := slices.Concat(flags, []string{"-shared", "-fPIC", "-o", library, "testdata/spins.cpp", "-lpthread"})
	out, err := exec.Command("g++", args...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	spinsOf[key], err = os.ReadFile(library)
	require.NoError(t, err)
	return library
}

// mappingsOf are those of a process's code.
func mappingsOf(t testing.TB, pid uint32) []procmaps.Mapping {
	t.Helper()
	maps, err := procmaps.NewCache(procmaps.Config{ProcFS: "/proc"}).Snapshot(pid)
	require.NoError(t, err)
	return maps.Mappings
}

// symbolsOf are a library's, where a process has mapped them.
func symbolsOf(t testing.TB, mapped []procmaps.Mapping, library string) map[string]span {
	t.Helper()
	at := slices.IndexFunc(mapped, func(m procmaps.Mapping) bool { return m.Path == library })
	require.GreaterOrEqual(t, at, 0, "%s is not mapped", library)
	f, err := elf.Open(library)
	require.NoError(t, err)
	defer f.Close()
	symbols, err := f.Symbols()
	require.NoError(t, err)
	found, base := map[string]span{}, mapped[at].Start-mapped[at].Offset
	for _, s := range symbols {
		found[s.Name] = span{base + s.Value, base + s.Value + s.Size}
	}
	return found
}

func startSpins(t testing.TB, python string, flags ...string) *spun {
	t.Helper()
	library := spins(t, flags)
	s := &spun{workload: start(t, python, "testdata/spins.py", library), spins: map[int]span{}, calls: map[int][][]uint64{}}
	s.read(t, nil)
	mapped := mappingsOf(t, uint32(s.Process.Pid))
	for _, m := range mapped {
		if m.Path != library && strings.Contains(filepath.Base(m.Path), "python3") {
			s.interpreter = append(s.interpreter, span{m.Start, m.End})
		}
	}
	for name, at := range symbolsOf(t, mapped, library) {
		n := 0
		if _, err := fmt.Sscanf(name, "_Z4spinILi%dEEvv", &n); err == nil && !strings.Contains(name, ".cold") {
			s.spins[n] = at
		} else if strings.HasPrefix(name, "inner_") {
			s.inner = append(s.inner, at)
		}
	}
	require.Len(t, s.spins, 36)
	require.GreaterOrEqual(t, len(s.inner), 3)
	return s
}

// scenes runs all of them and waits for what they were; during is called meanwhile.
func (s *spun) scenes(t testing.TB, who, how string, length time.Duration) {
	t.Helper()
	fmt.Fprintln(s.in, who, how, length.Milliseconds())
	var said [][]uint64
	s.read(t, &said)
	for _, one := range said {
		// From the return address in the function itself on, up to the interpreter.
		frames := one[2:]
		if end := slices.IndexFunc(frames, s.isInterpreter); end >= 0 {
			frames = frames[:end]
		}
		s.calls[int(one[0])] = append(s.calls[int(one[0])], frames)
	}
}

func (s *spun) isInterpreter(at uint64) bool {
	return slices.ContainsFunc(s.interpreter, func(r span) bool { return r.has(at) })
}

// verdict counts stacks by whether the program had them.
type verdict struct {
	complete, cut, other, wrong int
	scenes                      map[int]int // complete ones
	why                         map[stack.Flags]int
}

func (v *verdict) add(t testing.TB, s *spun, native []uint64, flags stack.Flags, n int) {
	t.Helper()
	scene, at := -1, -1
	for i, address := range native {
		for k, r := range s.spins {
			if at < 0 && r.has(address) {
				scene, at = k, i
			}
		}
	}
	if at < 0 {
		isInner := len(native) > 0 && slices.ContainsFunc(s.inner, func(r span) bool { return r.has(native[0]) })
		switch {
		case flags&cuts != 0:
			v.cut += n
			v.why[flags&cuts] += n
		case isInner:
			v.fail(t, n, "the caller of an inner function is not there: %#x", native)
		default:
			v.other += n
		}
		return
	}
	callers := native[at+1:]
	// Where the mappings were being changed, the last address may be the interpreter's: it was not
	// known for that.
	if last := len(callers) - 1; flags&stack.NativeBusy != 0 && last >= 0 && s.isInterpreter(callers[last]) {
		callers = callers[:last]
	}
	for _, want := range s.calls[scene] {
		if flags&cuts == 0 && slices.Equal(callers, want) {
			v.complete += n
			v.scenes[scene] += n
			return
		}
		if flags&cuts != 0 && len(callers) <= len(want) && slices.Equal(callers, want[:len(callers)]) {
			v.cut += n
			v.why[flags&cuts] += n
			return
		}
	}
	v.fail(t, n, "scene %d, flags %d: %#x, want one of %#x", scene, flags, native, s.calls[scene])
}

func (v *verdict) fail(t testing.TB, n int, format string, args ...any) {
	t.Helper()
	if v.wrong += n; v.wrong < 10 {
		assert.Fail(t, "wrong stack", "%s", fmt.Sprintf(format, args...))
	}
}

// nativeOf is the native part of a stack.
func nativeOf(t testing.TB, c *ebpf.Collection, id uint64) ([]uint64, stack.Flags) {
	t.Helper()
	b, err := c.Maps["stacks_by_id"].LookupBytes(id)
	require.NoError(t, err)
	require.NotNil(t, b)
	raw, err := stack.DecodeStack(b)
	require.NoError(t, err)
	return raw.Native, raw.Flags
}

// builds of the library, and what runs them.
var spinBuilds = [][]string{{"-O2", "-fomit-frame-pointer"}, {"-O0"}, {"-O3", "-fcf-protection=full"}}

// TestSamplesHaveTheNativeFramesOfTheirMoment: wherever the thread is interrupted, also while a
// function saves its registers, in a signal's handler, in the kernel or while an exception passes.
func TestSamplesHaveTheNativeFramesOfTheirMoment(t *testing.T) {
	// 300 samples of each scene: most of those of an exception are cut.
	const length, hz = 30 * time.Millisecond, 9999
	for _, python := range newest(pythons(t), 1) {
		for _, flags := range spinBuilds {
			t.Run(filepath.Base(python)+strings.Join(flags, ""), func(t *testing.T) {
				s := startSpins(t, python, flags...)
				c, u := loadNative(t, onCPU, s.Process.Pid)
				stop := sample(t, c, hz)
				s.scenes(t, "python", "compute", length)
				s.scenes(t, "native", "compute", length)
				stop()
				v := verdict{scenes: map[int]int{}, why: map[stack.Flags]int{}}
				for k, r := range rows(t, c) {
					native, flags := nativeOf(t, c, k.Stack)
					v.add(t, s, native, flags, int(r.Samples))
				}
				t.Logf("%d complete, %d wrong, %d cut %v, %d of other code; %d stacks; %+v", v.complete, v.wrong, v.cut, v.why, v.other, len(rows(t, c)), u.Stats())
				all := v.complete + v.cut + v.other + v.wrong
				assert.Zero(t, v.wrong)
				if !countsChanges(t) {
					assert.Equal(t, map[stack.Flags]int{stack.NativeBusy: all}, v.why, "before Linux 6.4 nothing is known of the mappings")
					return
				}
				assert.Greater(t, v.complete, all*7/10, "a sixth of the work is exceptions, most of which is cut")
				assert.Len(t, v.scenes, len(s.spins), "scenes without a complete stack: %v", v.scenes)
			})
		}
	}
}

// countsChanges reports whether the kernel counts the changes of a process's mappings.
func countsChanges(t testing.TB) bool {
	t.Helper()
	kernel, err := btf.LoadKernelSpec()
	require.NoError(t, err)
	var mm *btf.Struct
	require.NoError(t, kernel.TypeByName("mm_struct", &mm))
	var has func(s []btf.Member) bool
	has = func(members []btf.Member) bool {
		return slices.ContainsFunc(members, func(m btf.Member) bool {
			inner, ok := m.Type.(*btf.Struct)
			return m.Name == "mm_lock_seq" || (m.Name == "" && ok && has(inner.Members))
		})
	}
	return has(mm.Members)
}

// newest are the last n.
func newest(all []string, n int) []string { return all[max(0, len(all)-n):] }

// TestDumpsHaveTheNativeFramesOfSleepingThreads: those of Python and those of a library.
func TestDumpsHaveTheNativeFramesOfSleepingThreads(t *testing.T) {
	kernel, err := btf.LoadKernelSpec()
	require.NoError(t, err)
	var function *btf.Func
	if err := kernel.TypeByName("bpf_task_from_pid", &function); errors.Is(err, btf.ErrNotFound) {
		t.Skip("the kernel has no bpf_task_from_pid() (Linux 6.2), which a dump needs")
	}
	for _, flags := range spinBuilds {
		t.Run(strings.Join(flags, ""), func(t *testing.T) {
			s := startSpins(t, newest(pythons(t), 1)[0], flags...)
			c, u := loadNative(t, dump, s.Process.Pid)
			s.scenes(t, "python", "sleep", 5*time.Second)
			s.scenes(t, "native", "sleep", 5*time.Second)
			var v verdict
			for range 20 {
				v = verdict{scenes: map[int]int{}, why: map[stack.Flags]int{}}
				for _, r := range threads(t, c) {
					if r.StackID == 0 {
						continue
					}
					native, flags := nativeOf(t, c, r.StackID)
					v.add(t, s, native, flags, 1)
				}
				if v.cut == 0 || v.wrong > 0 {
					break
				}
				time.Sleep(20 * time.Millisecond)
			}
			t.Logf("%d complete, %d wrong, %d cut %v, %d of other code; %+v", v.complete, v.wrong, v.cut, v.why, v.other, u.Stats())
			assert.Zero(t, v.wrong)
			assert.Zero(t, v.cut)
			assert.Equal(t, 2*len(s.spins), v.complete)
			if t.Failed() {
				text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/maps", s.Process.Pid))
				t.Logf("%s", text)
			}
		})
	}
}

// BenchmarkNativeSample measures the sampler's time for a stack of native frames below Python, and without
// them: go test -run - -bench NativeSample ./test/gadgets/pystack
func BenchmarkNativeSample(b *testing.B) {
	stats, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
	require.NoError(b, err)
	defer stats.Close()
	s := startSpins(b, newest(pythons(b), 1)[0], spinBuilds[0]...)
	for _, native := range []bool{false, true} {
		b.Run(fmt.Sprintf("native=%v", native), func(b *testing.B) {
			var c *ebpf.Collection
			if native {
				c, _ = loadNative(b, onCPU, s.Process.Pid)
			} else {
				c = load(b, onCPU, s.Process.Pid)
			}
			stop := sample(b, c, 1999)
			for b.Loop() {
				s.scenes(b, "python", "compute", 30*time.Millisecond)
			}
			stop()
			program, err := c.Programs["sampler"].Stats()
			require.NoError(b, err)
			var samples, frames float64
			for k, r := range rows(b, c) {
				n, _ := nativeOf(b, c, k.Stack)
				samples += float64(r.Samples)
				frames += float64(len(n)) * float64(r.Samples)
			}
			b.ReportMetric(float64(program.Runtime)/samples, "ns/sample")
			b.ReportMetric(frames/samples, "frames/sample")
		})
	}
}
