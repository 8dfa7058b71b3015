// SPDX-License-Identifier: Apache-2.0

// Package launches tests that cuda_kernel counts every call: a random workload on the
// simulated driver, whose journal has what every Python stack launched, copied and waited
// for.
package launches

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf/ringbuf"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/tracer"
)

// workload runs workload.py, calls `held` when all calls were made, and lets it end.
func workload(t *testing.T, library, dir string, held func(), env []string, args ...string) {
	t.Helper()
	which := "--libcuda"
	if strings.HasPrefix(filepath.Base(library), "libamdhip64") {
		which = "--hip"
	}
	cmd := exec.Command("python3", append([]string{"workload.py", which, library, "--out", dir}, args...)...)
	cmd.Env = append(os.Environ(), env...)
	hold(t, cmd, func(said string) {
		var done struct{ Holding []int }
		require.NoError(t, json.Unmarshal([]byte(said), &done))
		held()
	})
}

// hold runs a program, calls `held` with its first line, and lets it end.
func hold(t *testing.T, cmd *exec.Cmd, held func(said string)) {
	t.Helper()
	p := subject.Start(t, cmd)
	p.Timeout = time.Hour // as long as go test waits: there may be many calls
	held(p.Line())
	p.Say("")
	p.Wait()
}

// The rows of cuda_kernel.
type (
	process = tracer.CallProcess
	call    = tracer.Call
	total   = tracer.CallTotal
)

// event is struct call_event.
type event struct {
	TimestampNS, StartNS, EndNS        uint64
	Proc                               process
	Process, StackID, Function, Stream uint64
	Bytes, Nodes                       uint64
	Grid, Block                        [3]uint32
	Shared, Weight                     uint32
	Error, Status, Device              int32
	Operation                          [12]byte
	API                                [40]byte
	Direction                          [8]byte
}

func text(b []byte) string {
	b, _, _ = bytes.Cut(b, []byte{0})
	return string(b)
}

// gadget is a loaded cuda_kernel.
type gadget struct {
	*tracer.Tracer
	t *testing.T
}

// start loads cuda_kernel with its parameters set, and attaches it.
func start(t *testing.T, library string, o tracer.Options, parameters map[string]any) *gadget {
	t.Helper()
	return startGadget(t, "cuda_kernel", map[string]string{"libcuda": library}, o, parameters)
}

// startHIP is start for hip_kernel, whose rows are the same.
func startHIP(t *testing.T, library string, o tracer.Options, parameters map[string]any) *gadget {
	t.Helper()
	return startGadget(t, "hip_kernel", map[string]string{"libamdhip64": library}, o, parameters)
}

func startGadget(t *testing.T, name string, libraries map[string]string, o tracer.Options, parameters map[string]any) *gadget {
	t.Helper()
	edit := o.Edit
	o.Edit = func(spec *tracer.Spec) {
		for name, value := range parameters {
			require.NoError(t, spec.Variables[name].Set(value))
		}
		if edit != nil {
			edit(spec)
		}
	}
	return &gadget{tracer.Attach(t, name, libraries, o), t}
}

// read decodes all that the iterators give.
func read[T any](g *gadget, programs map[string]string) (all []T) {
	g.t.Helper()
	for program, m := range programs {
		iter := g.Iterator(program, m)
		r, err := iter.Open()
		require.NoError(g.t, err)
		b, err := io.ReadAll(r)
		require.NoError(g.t, err)
		r.Close()
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
	all := read[call](g, map[string]string{"dump_rows": "rows_by_stack", "dump_unknown": "unknown_rows"})
	if tracer.HasRules() {
		return g.merged(all)
	}
	return all
}

func (g *gadget) totals() []total {
	return read[total](g, map[string]string{"dump_totals": "totals_by_call"})
}

// name of a kernel by its number; false where there is none.
func (g *gadget) name(function uint64) (name string, isCut, ok bool) {
	b, err := g.Maps["names_by_function"].LookupBytes(function)
	require.NoError(g.t, err)
	if b == nil {
		return "", false, false
	}
	length := binary.NativeEndian.Uint32(b)
	return string(b[8 : 8+length]), binary.NativeEndian.Uint32(b[4:]) != 0, true
}

// python is a stack as "function file:line" from the leaf on.
func (g *gadget) python(id uint64) string {
	if id == 0 {
		return ""
	}
	raw, err := g.Maps["stacks_by_id"].LookupBytes(id)
	require.NoError(g.t, err)
	require.NotNil(g.t, raw, "stack %#x has no frames", id)
	s, err := stack.DecodeStack(raw)
	require.NoError(g.t, err)
	var lines []string
	for _, f := range s.Python {
		b, err := g.Maps["symbols_by_id"].LookupBytes(f.Symbol)
		require.NoError(g.t, err)
		require.NotNil(g.t, b)
		symbol, err := stack.DecodeSymbol(b)
		require.NoError(g.t, err)
		lines = append(lines, frame(symbol.Function, symbol.File, f.Line))
	}
	return strings.Join(lines, "; ")
}

// events reads the ring until it is stopped, and then the rest.
type events struct {
	all  []event
	stop func() []event
}

func (g *gadget) follow() *events {
	reader, err := ringbuf.NewReader(g.Maps["calls_ring"])
	require.NoError(g.t, err)
	e := &events{}
	var wait sync.WaitGroup
	wait.Go(func() {
		var record ringbuf.Record
		for {
			if err := reader.ReadInto(&record); err != nil {
				return // the deadline, once the ring is empty
			}
			var one event
			if _, err := binary.Decode(record.RawSample, binary.NativeEndian, &one); err == nil {
				e.all = append(e.all, one)
			}
		}
	})
	e.stop = func() []event {
		require.NoError(g.t, reader.Flush())
		reader.SetDeadline(time.Now())
		wait.Wait()
		reader.Close()
		slices.SortStableFunc(e.all, func(a, b event) int { return int(int64(a.EndNS) - int64(b.EndNS)) })
		return e.all
	}
	g.t.Cleanup(func() { reader.Close(); wait.Wait() })
	return e
}
