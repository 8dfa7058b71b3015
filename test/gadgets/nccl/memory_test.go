// SPDX-License-Identifier: Apache-2.0

package nccl

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/examples/simcuda/journal"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
	"github.com/gpu-gadgets/gpu-gadgets/operators/decode/communicators"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/bpftest"
	memory "github.com/gpu-gadgets/gpu-gadgets/test/support/tracer"
)

// Phases of simnccl (enum memory_phase), and what they are in the rows. On a thread of its own
// a communicator is known or not, by jobs.
const (
	simInit = iota + 1
	simOperation
	simThread
	simProgram
	simJob
)

var phases = map[uint64]string{simInit: "init", simOperation: "operation", simThread: "thread",
	simProgram: "ncclMemAlloc", simJob: "thread"}

// place is a row of `buffers`.
type place struct {
	number      uint64
	phase, kind string
	device      int32
}

type sums struct{ alloc, allocs, freed, frees uint64 }

// memoryWorkload is memory.py at work.
type memoryWorkload struct {
	t     *testing.T
	dir   string
	stdin io.WriteCloser
	out   *bufio.Scanner
}

func startMemory(t *testing.T, how string, args ...string) *memoryWorkload {
	w := &memoryWorkload{t: t, dir: t.TempDir()}
	paths := libraries(t)
	cmd := exec.Command("python3", append([]string{"memory.py", "--libcuda", paths["libcuda"], "--libnccl", paths["libnccl"]}, args...)...)
	cmd.Env = append(os.Environ(), "SIMNCCL_MEMORY="+how, "SIMCUDA_JOURNAL="+w.dir, "SIMCUDA_DEVICES=2",
		"LD_LIBRARY_PATH="+simulatedIn.dir)
	cmd.Stderr = os.Stderr
	var err error
	w.stdin, err = cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	w.out = bufio.NewScanner(out)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { w.stdin.Close(); _ = cmd.Wait() })
	return w
}

// says returns the next line that it prints.
func (w *memoryWorkload) says() (line struct {
	Made, Ready uint32
	Reused      bool
}) {
	w.t.Helper()
	require.True(w.t, w.out.Scan(), "the workload has ended")
	require.NoError(w.t, json.Unmarshal(w.out.Bytes(), &line))
	return line
}

// truth returns the memory that the driver gave to NCCL, by the tags of simnccl. `edit` returns the
// row that an allocation belongs to.
func (w *memoryWorkload) truth(edit func(place, uint64) place) (map[place]sums, uint64) {
	journals, err := journal.ReadDir(w.dir)
	require.NoError(w.t, err)
	require.Len(w.t, journals, 1)
	want, inuse := map[place]sums{}, uint64(0)
	where, size := map[uint64]place{}, map[uint64]uint64{}
	for _, r := range journals[0].Records {
		switch {
		case r.Type == journal.Alloc && r.Tag>>63 != 0:
			phase := r.Tag >> 32 & 0xff
			p := edit(place{r.Tag & 0xffffffff, phases[phase], r.Kind.String(), r.Device}, phase)
			s := want[p]
			s.alloc, s.allocs = s.alloc+r.Size, s.allocs+1
			want[p] = s
			where[r.Seq], size[r.Seq] = p, r.Size
			inuse += r.Size
		case r.Type == journal.Free:
			if p, ok := where[r.AllocSeq]; ok {
				s := want[p]
				s.freed, s.frees = s.freed+size[r.AllocSeq], s.frees+1
				want[p] = s
				inuse -= size[r.AllocSeq]
			}
		}
	}
	require.NotEmpty(w.t, want)
	return want, inuse
}

// plain is used at first together with another one on its device.
const plain = 2

// known edits the truth: which of two a job is for is not known.
func known(p place, phase uint64) place {
	if phase == simJob && p.number == plain {
		p.number = 0
	}
	return p
}

func startBuffers(t *testing.T, flags ...string) *memory.Tracer {
	paths := libraries(t)
	tr := memory.Start(t, paths["libcuda"], memory.Options{Flags: flags, Libraries: map[string]string{"libnccl": paths["libnccl"]}, Edit: func(s *memory.Spec) {
		require.NoError(t, s.Variables[communicators.Constant].Set(true))
		communicators.Enlarge(s.Maps)
	}})
	return tr
}

// buffers reads the data source.
func buffers(t *testing.T, tr *memory.Tracer) (have map[place]sums, rows []communicators.Buffer) {
	have = map[place]sums{}
	r, err := tr.Iterator("dump_buffers", communicators.SumsMap).Open()
	require.NoError(t, err)
	defer r.Close()
	b, err := io.ReadAll(r)
	require.NoError(t, err)
	rows, err = communicators.Decode(b)
	require.NoError(t, err)
	for _, r := range rows {
		have[place{r.Number, r.Phase, r.Kind, r.Device}] = sums{r.AllocBytes, r.AllocObjects, r.FreedBytes, r.FreedObjects}
	}
	return have, rows
}

// TestMemoryBelongsToCommunicators: each allocation that NCCL makes, in the calls of a program,
// on the threads of a group and on its own, with both of the driver's ways to allocate.
func TestMemoryBelongsToCommunicators(t *testing.T) {
	for _, how := range []string{"vmm", "malloc"} {
		t.Run(how, func(t *testing.T) {
			tr := startBuffers(t)
			w := startMemory(t, how)
			ready := w.says()
			want, inuse := w.truth(known)
			have, rows := buffers(t, tr)
			requireSame(t, want, have)
			drops := tr.Drops()
			delete(drops, "python_thread_unknown") // NCCL's own threads run no Python
			require.Empty(t, drops)

			// The rows by stack, of which the caller is in libnccl, have the same sum.
			var sum, byStack uint64
			names := map[uint64]string{}
			for _, r := range rows {
				sum += r.InuseBytes
				names[r.Number] = r.Name
				if r.Number == 0 {
					require.Zero(t, r.Identity)
					continue
				}
				require.NotZero(t, r.Identity, "%+v", r)
				require.NotZero(t, r.StackID, "%+v", r)
				state := "active"
				if r.Number == plain {
					state = "destroyed"
					require.Zero(t, r.InuseBytes)
				}
				require.Equal(t, state, r.State, "%+v", r)
			}
			maps := procmaps.NewCache(procmaps.Config{})
			for _, r := range tr.Rows() {
				if len(r.Native) > 1 && inLibrary(maps, ready.Ready, r.Native[1]) {
					byStack += r.InuseBytes
				}
			}
			require.Equal(t, inuse, sum)
			require.Equal(t, inuse, byStack)
			require.Equal(t, "gradients", names[1])
			t.Logf("%d bytes in %d rows; the handle came again: %t", sum, len(rows), ready.Reused)
		})
	}
}

// requireSame reports the rows that differ.
func requireSame(t *testing.T, want, have map[place]sums) {
	t.Helper()
	for p, s := range want {
		assert.Equal(t, s, have[p], "%+v", p)
	}
	for p := range have {
		assert.Contains(t, want, p)
	}
	if t.Failed() {
		t.FailNow()
	}
}

func inLibrary(maps *procmaps.Cache, pid uint32, address uint64) bool {
	m, ok := maps.Find(pid, address)
	return ok && strings.Contains(m.Path, "libnccl")
}

// TestATenantLeavesOwnersToOthers: a container that makes as many communicators as there is room for
// leaves the last quarter to others, and so with the sums.
func TestATenantLeavesOwnersToOthers(t *testing.T) {
	const owners, all = 64, 256
	tr := startBuffers(t, fmt.Sprint("-DMAX_OWNERS=", owners), fmt.Sprint("-DMAX_OWNER_SUMS=", all))
	hostile := many(t, 2*owners, "SIMNCCL_MEMORY=vmm", "LD_LIBRARY_PATH="+simulatedIn.dir)
	require.Eventually(t, func() bool { return tr.Refused(memory.QuotaOwners) > 0 && tr.Refused(memory.QuotaSums) > 0 }, waitLimit, 100*time.Millisecond,
		"%d owners, %d sums", tr.Len("owners_by_number"), tr.Len(communicators.SumsMap))
	require.Equal(t, owners/4*3, tr.Len("owners_by_number"))
	require.Equal(t, all/4*3, tr.Len(communicators.SumsMap))
	require.Positive(t, hostile)

	w := startMemory(t, "vmm")
	ready := w.says()
	want, _ := w.truth(known)
	_, rows := buffers(t, tr)
	have := map[place]sums{}
	for _, r := range rows {
		if r.PID == ready.Ready {
			have[place{r.Number, r.Phase, r.Kind, r.Device}] = sums{r.AllocBytes, r.AllocObjects, r.FreedBytes, r.FreedObjects}
		}
	}
	requireSame(t, want, have)
}

// TestMemoryOfOlderCommunicators: of a communicator that is older than the attach its own
// threads are known by their names only, and its calls by its handle.
func TestMemoryOfOlderCommunicators(t *testing.T) {
	w := startMemory(t, "vmm,named", "--wait")
	w.says()
	before, _ := w.truth(func(p place, _ uint64) place { return p })
	tr := startBuffers(t)
	_, err := io.WriteString(w.stdin, "\n")
	require.NoError(t, err)
	w.says()
	want, _ := w.truth(func(p place, phase uint64) place {
		if phase == simThread && p.number == 1 || phase == simJob && p.number == 3 {
			p.number = 0
		}
		return p
	})
	for p, s := range before {
		if p.phase == "thread" {
			p.number = 0
		}
		now := want[p]
		now.alloc, now.allocs = now.alloc-s.alloc, now.allocs-s.allocs
		if want[p] = now; now == (sums{}) {
			delete(want, p)
		}
	}
	have, rows := buffers(t, tr)
	requireSame(t, want, have)
	for _, r := range rows {
		if r.Number == 1 {
			require.Zero(t, r.Identity)
			require.Zero(t, r.StackID, "who made it is not known")
			require.NotZero(t, r.Handle)
		}
	}
}

// TestProductShowsCommunicators: with --communicators on a row has the communicator's name and
// the line that created it; off, NCCL is not probed at all.
func TestProductShowsCommunicators(t *testing.T) {
	bpftest.RequireRoot(t)
	for how, library := range map[string]string{"on": "libnccl.so.2", "off": "libcuda.so.1"} {
		t.Run(how, func(t *testing.T) {
			w := startMemory(t, "vmm", "--wait")
			pid := w.says().Made
			cmd := exec.Command("../../../bin/ig-gpu", "run", "cuda_alloc", "--communicators", how, "--pid", strconv.Itoa(int(pid)),
				"-o", "buffers:json,attachments:json,allocs:json")
			out, err := cmd.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, cmd.Start(), "run make build")
			late := time.AfterFunc(waitLimit, func() { cmd.Process.Kill() })
			defer late.Stop()
			var probed []string
			began, done := false, false
			for lines := bufio.NewScanner(out); lines.Scan() && !done; {
				var row struct {
					Type, Path, Status, Communicator, Name, Where string
					Inuse                                         uint64 `json:"inuse_bytes"`
				}
				require.NoError(t, json.Unmarshal(lines.Bytes(), &row), lines.Text())
				switch {
				case row.Status == "attached":
					probed = append(probed, filepath.Base(row.Path))
					if filepath.Base(row.Path) == library {
						_, err := io.WriteString(w.stdin, "\n")
						require.NoError(t, err)
						began = true
					}
				case row.Type == "buffers":
					require.Equal(t, "on", how)
					if done = row.Name == "gradients" && row.Inuse > 0; done {
						require.Regexp(t, "^0x[0-9a-f]+$", row.Communicator)
						require.Regexp(t, `NCCL\.__call__ \(nccl\.py:\d+\)`, row.Where)
					}
				case row.Type == "allocs":
					done = how == "off" && began
				}
			}
			require.NoError(t, cmd.Process.Signal(os.Interrupt))
			_, _ = io.Copy(io.Discard, out)
			_ = cmd.Wait()
			require.True(t, done, "not seen")
			require.Equal(t, how == "on", slices.Contains(probed, "libnccl.so.2"), "%v", probed)
		})
	}
}

// TestOldKernelsCountNoCommunicators: where the programs cannot, the gadget for such kernels says
// so and runs on. It also runs on newer ones.
func TestOldKernelsCountNoCommunicators(t *testing.T) {
	bpftest.RequireRoot(t)
	w := startMemory(t, "vmm", "--wait")
	pid := strconv.Itoa(int(w.says().Made))
	cmd := exec.Command("../../../bin/ig-gpu", "run", "cuda_alloc_linux_5_10", "--communicators", "on", "--pid", pid,
		"-o", "allocs:json", "--timeout", "3s")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Equal(t, 1, strings.Count(string(out), "not counted by communicator: that needs Linux 6.0 or newer (--communicators)"), "%s", out)
}
