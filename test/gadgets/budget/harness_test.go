// SPDX-License-Identifier: Apache-2.0

// Package budget tests cuda_kernel with a budget: the cost of its probes for threads that
// launch all the time, and the accuracy of its estimates.
package budget

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/ig/attachpoint"
	"github.com/gpu-gadgets/gpu-gadgets/internal/tracer"
	"github.com/gpu-gadgets/gpu-gadgets/internal/tracer/traps"
	"github.com/gpu-gadgets/gpu-gadgets/operators/attach/budget"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/bpftest"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/simulated"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject"
	rows "github.com/gpu-gadgets/gpu-gadgets/test/support/tracer"
)

// gadget is cuda_kernel with a tracer and a budget.
type gadget struct {
	half map[uint64]sum // the cost of threads at some time
	*ebpf.Collection
	t      *testing.T
	tracer *tracer.Tracer
	budget *budget.Controller
	traps  traps.Cost
	names  map[uint32]string // functions by cookie
}

// start loads cuda_kernel with a budget of so many percent and attaches it to a process.
func start(t *testing.T, percent float64, pid int) *gadget {
	t.Helper()
	bpftest.RequireRoot(t)
	spec := bpftest.Spec(t, "../../../gadgets/cuda_kernel/program.bpf.c", "-mcpu=v3")
	require.NoError(t, spec.Variables["attach_mode"].Set(attachpoint.Multi))
	require.NoError(t, spec.Variables["budget_ppm"].Set(uint32(percent*1e4)))
	points, err := attachpoint.Parse(spec.Maps[".rodata.attach"])
	require.NoError(t, err)
	g := &gadget{Collection: bpftest.LoadSpec(t, spec), t: t, names: map[uint32]string{}}

	g.traps, err = traps.Measure()
	require.NoError(t, err)
	cfg := tracer.Config{Mode: tracer.Multi, PIDs: []uint32{uint32(pid)}, Programs: tracer.Programs{
		EnterMulti: g.Programs["call_enter_multi"], ExitMulti: g.Programs["call_exit_multi"],
	}}
	inWindows := map[uint32]bool{}
	for _, p := range points {
		if p.OnDemand() || p.USDT {
			continue
		}
		cfg.Points = append(cfg.Points, tracer.Point{Library: p.Library, Symbol: p.Symbol, Cookie: p.Cookie, Exit: p.Exit})
		inWindows[p.Cookie] = p.InWindows
		g.names[p.Cookie] = p.Symbol
	}
	g.tracer, err = tracer.New(cfg)
	require.NoError(t, err)
	maps := budget.Maps{Traps: g.Maps["budget_traps"], ByAPI: g.Maps["budget_by_api"], ByThread: g.Maps["budget_by_thread"],
		Gates: g.Maps["window_gates"], Since: g.Maps["window_apis"], Inflight: g.Maps["window_inflight"], Samples: g.Maps["sample_states"]}
	require.NoError(t, maps.SetTraps(g.traps))
	for _, name := range []string{"on_exit", "on_exec", "on_fork"} {
		l, err := link.AttachTracing(link.TracingOptions{Program: g.Programs[name]})
		require.NoError(t, err)
		t.Cleanup(func() { l.Close() })
	}
	ctx, cancel := context.WithCancel(context.Background())
	require.NoError(t, g.tracer.Start(ctx))
	g.budget = budget.NewController(budget.Settings{Gadget: "cuda_kernel", Maps: maps, Prober: g.tracer, Traps: g.traps,
		Percent: percent, InWindows: inWindows, Info: t.Logf, Warn: t.Logf})
	done := make(chan error, 1)
	go func() { done <- g.budget.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
		g.tracer.Stop()
	})
	return g
}

// The rows of cuda_kernel.
type (
	call  = rows.Call
	total = rows.CallTotal
)

func text(b []byte) string {
	b, _, _ = bytes.Cut(b, []byte{0})
	return string(b)
}

func read[T any](g *gadget, programs map[string]string) (all []T) {
	g.t.Helper()
	for program, name := range programs {
		iter := bpftest.Iterate(g.t, g.Collection, program, name)
		r, err := iter.Open()
		require.NoError(g.t, err)
		b, err := io.ReadAll(r)
		require.NoError(g.t, err)
		r.Close()
		iter.Close()
		var one T
		size := binary.Size(one)
		require.Zero(g.t, len(b)%size, "the structure is another one in C")
		for ; len(b) > 0; b = b[size:] {
			_, err := binary.Decode(b[:size], binary.NativeEndian, &one)
			require.NoError(g.t, err)
			all = append(all, one)
		}
	}
	return all
}

func (g *gadget) rows() []call {
	return read[call](g, map[string]string{"dump_rows": "rows_by_stack", "dump_unknown": "unknown_rows"})
}

func (g *gadget) totals() []total {
	return read[total](g, map[string]string{"dump_totals": "totals_by_call"})
}

// loop runs testdata/loop.c, which reads how long each run is to last.
func loop(t *testing.T, rate int) *subject.Process {
	t.Helper()
	program := filepath.Join(t.TempDir(), "loop")
	out, err := exec.Command("cc", "-O2", "-fno-omit-frame-pointer", "-o", program, "testdata/loop.c", "-ldl").CombinedOutput()
	require.NoError(t, err, string(out))
	return subject.Start(t, exec.Command(program, simulated.DriverCopy(t), fmt.Sprint(rate)))
}

// did is loop's report of a run.
type did struct{ launches, copies, bytes, wallNS, cpuNS uint64 }

func run(t *testing.T, p *subject.Process, milliseconds int) (d did) {
	t.Helper()
	p.Say("%d", milliseconds)
	line := p.Line()
	_, err := fmt.Sscan(line, &d.launches, &d.copies, &d.bytes, &d.wallNS, &d.cpuNS)
	require.NoError(t, err, line)
	return d
}

const (
	launchAPI = "cuLaunchKernel"
	copyAPI   = "cuMemcpyHtoDAsync_v2"
)

// kernels returns the functions launched so far.
func (g *gadget) kernels() map[uint64]bool {
	g.t.Helper()
	all := map[uint64]bool{}
	for _, total := range g.totals() {
		if text(total.API[:]) == launchAPI {
			all[total.Function] = true
		}
	}
	return all
}

// launched returns how often a kernel was launched, by its total and by its rows.
func (g *gadget) launched(function uint64) (all, rows estimate) {
	g.t.Helper()
	for _, total := range g.totals() {
		if text(total.API[:]) == launchAPI && total.Function == function {
			all = estimate{value: total.Calls, err: total.CallsError}
		}
	}
	for _, row := range g.rows() {
		if text(row.API[:]) == launchAPI && row.Function == function {
			rows.value += row.Calls
			rows.err += row.CallsError
		}
	}
	return all, rows
}

// copied returns the number of copies so far, and their bytes.
func (g *gadget) copied() (all [2]estimate) {
	g.t.Helper()
	for _, total := range g.totals() {
		if text(total.API[:]) == copyAPI {
			all = [2]estimate{{value: total.Calls, err: total.CallsError}, {value: total.Bytes, err: total.BytesError}}
		}
	}
	return all
}

// sum is struct budget_sum of bpf/call/budget.h.
type sum struct{ Process, CostNS, CPUNS uint64 }

// paid returns the cost of the probes for a process with one thread.
func (g *gadget) paid(pid int) (s sum) {
	g.t.Helper()
	require.NoError(g.t, g.Maps["budget_by_thread"].Lookup(uint64(pid)<<32|uint64(pid), &s))
	return s
}
