// SPDX-License-Identifier: Apache-2.0

package symbols

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/elf/module"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
	"github.com/gpu-gadgets/gpu-gadgets/internal/stack/library"
)

// fakeProcess maps two files without symbols and some generated code.
type fakeProcess struct {
	opened, found int
	spent         bool // its tenant's allowance, so that its mappings are not read
	hangs         bool // its file system
}

func (*fakeProcess) mappings() []procmaps.Mapping {
	return []procmaps.Mapping{
		{Start: 0x1000, End: 0x2000, Inode: 1, Path: "/usr/lib/libcuda.so.1"},
		{Start: 0x5000, End: 0x6000, Inode: 2, Path: "/opt/embedded"},
		{Start: 0x9000, End: 0xa000, Path: "[vdso]"},
	}
}

func (p *fakeProcess) Find(_ uint32, address uint64) (procmaps.Mapping, bool) {
	return (&procmaps.Snapshot{Mappings: p.mappings()}).Find(address)
}

func (p *fakeProcess) FindSince(pid uint32, address uint64, _ time.Time) (m procmaps.Mapping, ok, isFinal bool) {
	p.found++
	if p.spent {
		return procmaps.Mapping{}, false, false
	}
	m, ok = p.Find(pid, address)
	return m, ok, true
}

func (p *fakeProcess) Open(uint32, procmaps.Mapping) (*procmaps.File, error) {
	p.opened++
	if p.hangs {
		return nil, fmt.Errorf("open: %w", procmaps.ErrHangs)
	}
	return nil, errors.New("gone")
}

func (*fakeProcess) Identities(_ uint32, all []procmaps.Mapping) []string {
	return make([]string, len(all))
}

func (*fakeProcess) Tenant(uint32) procmaps.Tenant { return 1 }

func (p *fakeProcess) Around(_ uint32, address uint64) []procmaps.Mapping {
	if p.spent {
		return nil
	}
	return (&procmaps.Snapshot{Mappings: p.mappings()}).Around(address)
}

func (*fakeProcess) OpenIn(uint32, string) (*procmaps.File, error) {
	return nil, errors.New("no such file")
}

type fakeMaps struct {
	stacks, symbols map[uint64][]byte
	runtime         uint64
	reads           int
}

func (m *fakeMaps) Stack(id uint64) ([]byte, bool) {
	m.reads++
	b, ok := m.stacks[id]
	return b, ok
}

func (m *fakeMaps) Symbol(id uint64) ([]byte, bool) {
	m.reads++
	b, ok := m.symbols[id]
	return b, ok
}

func (m *fakeMaps) Runtime(uint64) (uint64, bool) { return m.runtime, m.runtime != 0 }

// The layout of bpf/stack/stack.h, which the tests of package stack hold.
func wireStack(native []uint64, python ...[2]uint64) []byte {
	b := make([]byte, stack.StackBytes)
	binary.NativeEndian.PutUint16(b[4:], uint16(len(native)))
	binary.NativeEndian.PutUint16(b[6:], uint16(len(python)))
	for i, address := range native {
		binary.NativeEndian.PutUint64(b[8+8*i:], address)
	}
	for i, p := range python {
		binary.NativeEndian.PutUint64(b[stack.StackPythonOffset+16*i:], p[0])
		binary.NativeEndian.PutUint32(b[stack.StackPythonOffset+16*i+8:], uint32(p[1]))
	}
	return b
}

func wireSymbol(name, file string) []byte {
	b := make([]byte, stack.SymbolBytes)
	binary.NativeEndian.PutUint16(b[4:], uint16(len(name)))
	binary.NativeEndian.PutUint16(b[6:], uint16(len(file)))
	b[10], b[11], b[13] = 1, 1, 1
	copy(b[18:], name)
	copy(b[18+128:], file)
	return b
}

func TestStackIsJoinedAtTheInterpreterOfTheRuntime(t *testing.T) {
	maps := &fakeMaps{
		// _PyRuntime lies behind the code of /opt/embedded.
		runtime: 0x7000,
		stacks:  map[uint64][]byte{9: wireStack([]uint64{0x1100, 0x5100, 0x5200}, [2]uint64{1, 3}, [2]uint64{2, 7})},
		symbols: map[uint64][]byte{1: wireSymbol("Model.load", "/app/model.py"), 2: wireSymbol("<module>", "/app/main.py")},
	}
	s := NewStacks(NewResolver(&fakeProcess{}), maps, library.Paths{})
	n := s.Stack(1, 100, 9)
	require.Equal(t, "<module> (main.py:7); Model.load (model.py:3); <interpreter trampoline>; 0x100 (libcuda.so.1)", n.Folded)
	require.Equal(t, "Model.load (model.py:3)", n.Frame)

	// Known stacks cost nothing.
	reads := maps.reads
	require.Same(t, n, s.Stack(1, 100, 9))
	require.Equal(t, reads, maps.reads)
}

// torch.compile generates the function that launches a kernel: what shows that is its caller.
func TestLauncherOfACompiledKernelIsNotTheProgramsOwnLine(t *testing.T) {
	maps := &fakeMaps{
		stacks: map[uint64][]byte{
			1: wireStack(nil, [2]uint64{1, 5}, [2]uint64{2, 8}, [2]uint64{3, 99}, [2]uint64{4, 12}),
			2: wireStack(nil, [2]uint64{1, 5}, [2]uint64{4, 12}),
		},
		symbols: map[uint64][]byte{
			1: wireSymbol("launcher", "<string>"),
			2: wireSymbol("CachingAutotuner.run", "/usr/lib/python3/dist-packages/torch/_inductor/runtime/triton_heuristics.py"),
			3: wireSymbol("call", "/tmp/torchinductor_u/k5/ck5u3zq2g7wxyabcdefghijklmnopqrstuvwxyz234567abcdefg.py"),
			4: wireSymbol("train", "/app/train.py"),
		},
	}
	paths, err := library.Parse("")
	require.NoError(t, err)
	s := NewStacks(NewResolver(&fakeProcess{}), maps, paths)
	require.Equal(t, "train (train.py:12)", s.Stack(1, 1, 1).Stack.User().Label())
	require.Equal(t, "launcher (<string>:5)", s.Stack(1, 1, 2).Stack.User().Label(), "python -c")
	s = NewStacks(NewResolver(&fakeProcess{}), maps, library.Paths{})
	require.Equal(t, "launcher (<string>:5)", s.Stack(1, 1, 1).Stack.User().Label())
}

// To find the interpreter is at the cost of the tenant: it is not found while that is spent, and not missed for ever then.
func TestTheInterpreterIsFoundWithinTheAllowance(t *testing.T) {
	p := &fakeProcess{spent: true}
	s, at := clocked(NewResolver(p))
	s.maps = &fakeMaps{
		runtime: 0x7000,
		stacks:  map[uint64][]byte{9: wireStack([]uint64{0x1100, 0x5100}, [2]uint64{1, 3})},
		symbols: map[uint64][]byte{1: wireSymbol("Model.load", "/app/model.py")},
	}
	require.Equal(t, "Model.load (model.py:3); <interpreter trampoline>; 0x5100; 0x1100", s.Stack(1, 100, 9).Folded)
	p.spent = false
	*at = at.Add(lookAgain)
	require.Equal(t, "Model.load (model.py:3); <interpreter trampoline>; 0x100 (libcuda.so.1)", s.Stack(1, 100, 9).Folded)
}

func TestUnknownRuntimeFallsBackToTheName(t *testing.T) {
	contains, isFinal := NewResolver(&fakeProcess{}).Interpreter(1, 0, time.Time{})
	require.True(t, isFinal)
	require.False(t, contains(0x5100))
	for base, want := range map[string]bool{
		"libpython3.12.so.1.0": true, "python3.12": true, "python3": true, "python": true, "python3.13t": true,
		"libtorch_python.so": false, "python-agent": false, "libcuda.so.1": false,
	} {
		require.Equal(t, want, isPython(base), base)
	}
}

func TestWhatIsMissingIsSaid(t *testing.T) {
	maps := &fakeMaps{
		stacks: map[uint64][]byte{
			1: wireStack(nil, [2]uint64{0, 5}, [2]uint64{77, 0}),
			2: {1, 2, 3},
			3: wireStack([]uint64{0xdead0001, 0x9100}),
		},
	}
	s := NewStacks(NewResolver(&fakeProcess{}), maps, library.Paths{})
	require.Equal(t, "<unreadable>; <unreadable> (line 5)", s.Stack(1, 1, 1).Folded)
	require.Equal(t, "[unknown]", s.Stack(1, 1, 2).Folded, "not our layout")
	require.Equal(t, "0x100 ([vdso]); 0xdead0001", s.Stack(1, 1, 3).Folded, "not ours: below 4 GiB")
	require.Equal(t, "[unknown]", s.Stack(1, 1, 4).Folded, "not in the map")
	require.Equal(t, "[unknown]", s.Stack(1, 1, 0).Folded)
}

func TestMissingStackIsLookedForAgain(t *testing.T) {
	maps := &fakeMaps{stacks: map[uint64][]byte{}, symbols: map[uint64][]byte{1: wireSymbol("f", "")}}
	s := NewStacks(NewResolver(&fakeProcess{}), maps, library.Paths{})
	require.Equal(t, "[unknown]", s.Stack(1, 1, 5).Folded)
	maps.stacks[5] = wireStack(nil, [2]uint64{1, 2})
	require.Equal(t, "f (line 2)", s.Stack(1, 1, 5).Folded)
}

func TestUnreadableModuleIsOpenedOncePerProcess(t *testing.T) {
	p := &fakeProcess{}
	r := NewResolver(p)
	for range 3 {
		r.Frame(1, 1, 0x1100, true)
	}
	require.Equal(t, 1, p.opened)
	r.Frame(2, 1, 0x1100, true)
	require.Equal(t, 2, p.opened)
}

// function is where a function is in a file, and where it was linked.
type function struct {
	offset, linked uint64
	buildID        string
}

func functionOf(t *testing.T, file *procmaps.File, name string) function {
	t.Helper()
	mod, err := module.Open(file, file.Size())
	require.NoError(t, err)
	found, err := mod.Lookup([]string{name})
	require.NoError(t, err)
	offset, ok := mod.FileOffset(found[name])
	require.True(t, ok)
	return function{offset, found[name], mod.BuildID()}
}

// A real process: the address of a function of its libc must come out named.
func TestFunctionOfALibraryIsNamed(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	pid := uint32(cmd.Process.Pid)
	mappings := procmaps.NewCache(procmaps.Config{})

	var libc procmaps.Mapping
	require.Eventually(t, func() bool {
		s, err := mappings.Snapshot(pid)
		if err != nil {
			return false
		}
		i := slices.IndexFunc(s.Mappings, func(m procmaps.Mapping) bool { return strings.Contains(m.Path, "libc.so") })
		if i >= 0 {
			libc = s.Mappings[i]
		}
		return i >= 0
	}, 30*time.Second, 10*time.Millisecond)
	file, err := mappings.Open(pid, libc)
	require.NoError(t, err)
	defer file.Close()
	getenv := functionOf(t, file, "getenv")
	address := libc.Start + getenv.offset - libc.Offset

	r := NewResolver(mappings)
	want := stack.Frame{Kind: stack.KindNative, Function: "getenv", File: libc.Path, BuildID: getenv.buildID}
	require.Equal(t, want, r.Frame(1, pid, address, true))
	require.Equal(t, want, r.Frame(1, pid, address+1, false))
	// The return address at the start of a function is of the one before.
	require.NotEqual(t, want, r.Frame(1, pid, address, false))
}
