// SPDX-License-Identifier: Apache-2.0

package pytorch

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// several starts processes.py in one of its situations, with a tracer, up to its work.
func several(t *testing.T, situation string, env ...string) *workload {
	p := begin(t, env, "processes.py", situation)
	w := &workload{program: p, pool: true, agent: trace[alloc](t, p, "cuda_alloc", "allocs", "--torch", "on")}
	w.agent.attached(p.PID(), "libcuda.so")
	var imported struct{ Imported string }
	p.request("", &imported)
	w.agent.attached(p.PID(), "libc10.so")
	return w
}

type said struct{ Moments []moment }

// Batches are pinned by a thread of the process and copied to a device; the workers, which
// are processes of their own, hold nothing.
func TestBatchesOfADataLoaderAreExact(t *testing.T) {
	t.Parallel()
	w := several(t, "loader")
	pinned := uint64(0)
	for n := range 3 {
		var s said
		w.request("", &s)
		for p, h := range w.compare(fmt.Sprintf("round %d", n), s.Moments[0]) {
			if p.kind == "host" {
				require.Contains(t, p.line, "(pin_memory.py:")
				pinned += h.bytes
			}
		}
	}
	require.Positive(t, pinned)
	for _, r := range w.rows {
		require.EqualValues(t, w.PID(), r.Proc.PID, "rows of a worker")
	}
	w.end(map[string]uint64{})
}

func TestSpawnedProcessesAreExact(t *testing.T) {
	t.Parallel()
	w := several(t, "spawn")
	var s said
	w.request("", &s)
	require.Len(t, s.Moments, 2)
	for _, m := range s.Moments {
		w.agent.attached(m.PID, "libcuda.so", "libc10.so")
	}
	for n := range 5 {
		w.request("", &s)
		for _, m := range s.Moments {
			want := w.compare(fmt.Sprintf("round %d of process %d", n, m.PID), m)
			require.GreaterOrEqual(t, len(want), 3)
		}
	}
	w.Say("end")
	w.Wait()
	w.end(map[string]uint64{})
}

// refused is a row of the data source ooms.
type refused struct {
	Proc           process `json:"proc"`
	API            string  `json:"api"`
	Device         int32   `json:"device"`
	Frame          string  `json:"frame"`
	Holders        string  `json:"holders"`
	RequestedBytes uint64  `json:"requested_bytes"`
	InuseBytes     uint64  `json:"inuse_bytes"`
	Allocated      uint64  `json:"pool_allocated_bytes"`
	Reserved       uint64  `json:"pool_reserved_bytes"`
}

// What the row says is what PyTorch's own message says, and the holders are those of its
// recorder.
func TestAnOOMIsAsPyTorchReportsIt(t *testing.T) {
	t.Parallel()
	w := several(t, "oom", "SIMCUDA_CAPACITY=1GiB")
	var s said
	w.request("", &s)
	m := s.Moments[0]
	w.compare("what it holds", m)
	var message struct{ Error string }
	w.request("", &message)
	t.Log(message.Error)
	var row refused
	w.until("the pool's refusal", func() (bool, any) {
		for _, text := range w.events {
			var r refused
			require.NoError(t, json.Unmarshal(text, &r))
			if r.API == "torch" {
				row = r
			}
		}
		return row.API != "", w.events
	})
	require.EqualValues(t, w.PID(), row.Proc.PID)
	require.Zero(t, row.Device)
	require.Regexp(t, `^next_batch \(processes\.py:\d+\)$`, row.Frame)
	require.Contains(t, message.Error, "Tried to allocate "+mebibytes(row.RequestedBytes)+". GPU 0 ")
	require.Contains(t, message.Error, mebibytes(row.Allocated)+" is allocated by PyTorch")
	require.Contains(t, message.Error, mebibytes(row.Reserved-row.Allocated)+" is reserved by PyTorch but unallocated")
	require.Equal(t, m.Allocated[0], row.Allocated)
	require.Equal(t, m.Allocated[0], row.InuseBytes)

	var want []string
	for _, l := range m.Lines { // all are of 100 MiB and more
		if l.Device == 0 { // what is on the other one takes no room
			want = append(want, fmt.Sprintf("%.0f MiB %s", float64(l.Bytes)/(1<<20), l.Line))
		}
	}
	have := strings.Split(row.Holders, "; ")
	slices.Sort(want)
	slices.Sort(have)
	require.Equal(t, want, have)

	w.Say("")
	err := w.fails()
	require.Equal(t, 1, err.ExitCode())
	w.end(map[string]uint64{})
	require.Contains(t, w.log.String(), "torch of 700 MiB on GPU 0 at "+row.Frame)
}

func mebibytes(bytes uint64) string { return fmt.Sprintf("%.2f MiB", float64(bytes)/(1<<20)) }
