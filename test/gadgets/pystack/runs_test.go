// SPDX-License-Identifier: Apache-2.0

package pystack

import (
	"encoding/binary"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/elf/symbols"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
	"github.com/gpu-gadgets/gpu-gadgets/internal/stack/library"
)

// kernelMaps are those of a loaded gadget, for names.
type kernelMaps struct{ *ebpf.Collection }

func (m kernelMaps) Stack(id uint64) ([]byte, bool)  { return m.value("stacks_by_id", id) }
func (m kernelMaps) Symbol(id uint64) ([]byte, bool) { return m.value("symbols_by_id", id) }

func (m kernelMaps) Runtime(process uint64) (uint64, bool) {
	b, ok := m.value("python_by_process", process)
	if !ok {
		return 0, false
	}
	return binary.NativeEndian.Uint64(b), true
}

func (m kernelMaps) value(name string, key uint64) ([]byte, bool) {
	b, err := m.Maps[name].LookupBytes(key)
	return b, err == nil && b != nil
}

// betweenParts is a stack by what matters, from the root on: functions of between.py, those of between.c, and
// changes from Python to native code.
func betweenParts(folded string) string {
	var parts []string
	for _, label := range strings.Split(folded, "; ") {
		switch f := stack.ParseLabel(label); {
		case f.Kind == stack.KindPython && strings.HasSuffix(f.File, "between.py"):
			parts = append(parts, f.Function)
		case f.Kind == stack.KindTrampoline:
			parts = append(parts, "|")
		case f.Kind == stack.KindNative && strings.HasPrefix(f.File, "between."):
			parts = append(parts, f.Function)
		}
	}
	return strings.Join(parts, " ")
}

// TestNativeFramesBetweenPythonFrames of a thread that sleeps in C, and of one that runs in the interpreter.
func TestNativeFramesBetweenPythonFrames(t *testing.T) {
	if !countsChanges(t) {
		t.Skip("before Linux 6.4 nothing is known of the mappings in an interrupt, and before 6.2 of other threads")
	}
	shared := filepath.Join(t.TempDir(), "between.so")
	out, err := exec.Command("gcc", "-O2", "-fomit-frame-pointer", "-shared", "-fPIC", "-o", shared, "testdata/between.c").CombinedOutput()
	require.NoError(t, err, "%s", out)
	const called = "<module> outer | crossing_a middle | crossing_bb inner inner.<locals>.<lambda> innermost"
	for how, want := range map[string]string{"sleeps": called + " | doze", "works": called} {
		t.Run(how, func(t *testing.T) {
			w := start(t, newest(pythons(t), 1)[0], "testdata/between.py", shared, how)
			w.read(t, nil)
			mode := map[string]uint32{"sleeps": dump, "works": onCPU}[how]
			c, _ := loadNative(t, mode, w.Process.Pid)
			names := symbols.NewStacks(symbols.NewResolver(procmaps.NewCache(procmaps.Config{ProcFS: "/proc"})), kernelMaps{c}, library.Paths{})
			if how == "works" {
				sample(t, c, 999)
			}
			var seen []string
			for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
				ids := map[uint64]uint64{} // stack → process
				if how == "works" {
					for k := range rows(t, c) {
						ids[k.Stack] = k.Process
					}
				} else {
					for _, r := range threads(t, c) {
						ids[r.StackID] = r.Process
					}
				}
				seen = nil
				for id, process := range ids {
					seen = append(seen, betweenParts(names.Stack(process, uint32(w.Process.Pid), id).Folded))
				}
				if slices.Contains(seen, want) {
					return
				}
			}
			require.Contains(t, seen, want)
		})
	}
}
