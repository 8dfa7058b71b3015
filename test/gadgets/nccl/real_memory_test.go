// SPDX-License-Identifier: Apache-2.0

package nccl

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/examples/simcuda/journal"
	"github.com/gpu-gadgets/gpu-gadgets/operators/decode/communicators"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/simulated"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject"
	memory "github.com/gpu-gadgets/gpu-gadgets/test/support/tracer"
)

// realMemory is testdata/real_memory.c, one step at a time.
type realMemory struct {
	*subject.Process
	t   *testing.T
	dir string // of its journal
	tr  *memory.Tracer
	// before the step
	journal, rows map[place]sums
}

func startRealMemory(t *testing.T, environment ...string) *realMemory {
	t.Helper()
	lib := simulated.HostNCCL(t)
	dir := t.TempDir()
	driver := simulated.Copy(t, dir, "simcuda", "libcuda.so.1")
	runtime := simulated.Copy(t, dir, "simcudart", "libcudart.so.12")
	program := filepath.Join(dir, "real_memory")
	out, err := exec.Command("gcc", "-O1", "-Wall", "-Werror", "-o", program, "testdata/real_memory.c",
		filepath.Join(lib, "libnccl.so.2"), runtime, "-Wl,--unresolved-symbols=ignore-in-shared-libs").CombinedOutput()
	require.NoError(t, err, "%s", out)
	w := &realMemory{t: t, dir: t.TempDir(), journal: map[place]sums{}, rows: map[place]sums{}}
	w.tr = memory.Start(t, driver, memory.Options{
		Libraries: map[string]string{"libnccl": filepath.Join(lib, "libnccl.so.2")},
		Edit: func(s *memory.Spec) {
			require.NoError(t, s.Variables[communicators.Constant].Set(true))
			communicators.Enlarge(s.Maps)
		}})
	cmd := exec.Command(program)
	cmd.Env = append(append(os.Environ(), "LD_LIBRARY_PATH="+dir+":"+lib, "SIMCUDA_JOURNAL="+w.dir, "SIMCUDA_DEVICES=2"),
		append(simulated.HostNCCLSettings(), environment...)...)
	w.Process = subject.Start(t, cmd)
	require.Equal(t, "ready", w.Line())
	w.journal = w.given()
	return w
}

// given is the driver's own sum of what it gave to the process and got back.
func (w *realMemory) given() map[place]sums {
	journals, err := journal.ReadDir(w.dir)
	require.NoError(w.t, err)
	require.Len(w.t, journals, 1)
	all, where, size := map[place]sums{}, map[uint64]place{}, map[uint64]uint64{}
	for _, r := range journals[0].Records {
		switch r.Type {
		case journal.Alloc:
			p := place{kind: r.Kind.String(), device: r.Device}
			s := all[p]
			s.alloc, s.allocs = s.alloc+r.Size, s.allocs+1
			all[p], where[r.Seq], size[r.Seq] = s, p, r.Size
		case journal.Free:
			p := where[r.AllocSeq]
			s := all[p]
			s.freed, s.frees = s.freed+size[r.AllocSeq], s.frees+1
			all[p] = s
		}
	}
	return all
}

func minus(now, before map[place]sums) map[place]sums {
	difference := map[place]sums{}
	for p, s := range now {
		b := before[p]
		if s != b {
			difference[p] = sums{s.alloc - b.alloc, s.allocs - b.allocs, s.freed - b.freed, s.frees - b.frees}
		}
	}
	return difference
}

// step makes the next one, and returns what it changed: in the driver's journal, and in the rows
// of communicators, with and without their numbers and phases.
func (w *realMemory) step(name string) (driver, rows map[place]sums, numbers map[uint64]bool) {
	w.t.Helper()
	w.Say("")
	require.Equal(w.t, name, w.Line())
	given := w.given()
	have, _ := buffers(w.t, w.tr)
	driver = minus(given, w.journal)
	rows, numbers = map[place]sums{}, map[uint64]bool{}
	for p, s := range minus(have, w.rows) {
		numbers[p.number] = true
		sum := rows[place{kind: p.kind, device: p.device}]
		rows[place{kind: p.kind, device: p.device}] = sums{sum.alloc + s.alloc, sum.allocs + s.allocs, sum.freed + s.freed, sum.frees + s.frees}
	}
	w.journal, w.rows = given, have
	return driver, rows, numbers
}

// TestRealNCCLHoldsWhatTheDriverGave: NCCL's own code makes communicators, connects them at their first
// collective and destroys them. What each step takes of the driver is in the rows of its communicators,
// to the byte, by kind and device.
func TestRealNCCLHoldsWhatTheDriverGave(t *testing.T) {
	for name, environment := range map[string]string{"cudaMalloc": "NCCL_CUMEM_ENABLE=0", "cuMem": "NCCL_CUMEM_ENABLE=1"} {
		t.Run(name, func(t *testing.T) {
			w := startRealMemory(t, environment)
			pair, single, none := []uint64{1, 2}, []uint64{3}, []uint64{0}
			var total uint64
			for _, s := range []struct {
				name string
				of   []uint64 // the numbers of communicators that may have allocated
			}{
				{"pair", pair}, {"single", single}, {"reduce pair", pair}, {"reduce single", single}, {"ncclMemAlloc", none},
				{"destroy pair", pair}, {"ncclMemFree", none}, {"destroy single", single},
			} {
				driver, rows, numbers := w.step(s.name)
				require.Equal(t, driver, rows, s.name)
				for n := range numbers {
					require.Contains(t, s.of, n, "%s: %+v", s.name, rows)
				}
				var alloc, freed uint64
				for _, d := range driver {
					alloc, freed = alloc+d.alloc, freed+d.freed
				}
				total += alloc
				t.Logf("%s: %d bytes allocated, %d freed, by communicators %v", s.name, alloc, freed, numbers)
			}
			require.Greater(t, total, uint64(10<<20))
			drops := w.tr.Drops()
			delete(drops, "python_thread_unknown")
			require.Empty(t, drops)
		})
	}
}
