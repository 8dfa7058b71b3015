// SPDX-License-Identifier: Apache-2.0

package nccl

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/ig/attachpoint"
	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
	"github.com/gpu-gadgets/gpu-gadgets/operators/decode/nccl"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/bpftest"
)

// tracer is the gadget's eBPF half, loaded and attached to the simulated libraries.
type tracer struct {
	*ebpf.Collection
	t testing.TB

	mu     sync.Mutex
	events []nccl.Event
}

type options struct {
	edit func(*ebpf.CollectionSpec)
	// linux510 are the programs for kernels before 6.0, without stacks: this kernel may
	// preempt them, and their unwinder relies on that it does not.
	linux510 bool
}

// start attaches to both files. Everything ends with the test.
func start(t testing.TB, libraries map[string]string, o options) *tracer {
	t.Helper()
	bpftest.RequireRoot(t)
	flags := []string{"-mcpu=v3"}
	if o.linux510 {
		flags = []string{"-mcpu=v2", "-DLINUX_5_10"}
	}
	spec := bpftest.Spec(t, source, flags...)
	if o.linux510 {
		require.NoError(t, spec.Variables["stacks"].Set(false))
	} else {
		require.NoError(t, spec.Variables["attach_mode"].Set(attachpoint.Multi))
	}
	require.NoError(t, spec.Variables["events"].Set(true))
	spec.Maps["operation_ring"].MaxEntries = 64 << 20
	if o.edit != nil {
		o.edit(spec)
	}
	tr := &tracer{Collection: bpftest.LoadSpec(t, spec), t: t}
	tr.read()
	points, err := attachpoint.Parse(spec.Maps[".rodata.attach"])
	require.NoError(t, err)
	for library, path := range libraries {
		file, err := link.OpenExecutable(path)
		require.NoError(t, err)
		var symbols []string
		options := &link.UprobeMultiOptions{}
		for _, p := range points {
			// The other name is the same address: internal/tracer sees to that.
			if p.Library != library || !exports(t, path, p.Symbol) || p.Symbol[0] == 'p' {
				continue
			}
			symbols = append(symbols, p.Symbol)
			options.Cookies = append(options.Cookies, uint64(p.Cookie))
			if o.linux510 {
				tr.keep(file.Uretprobe(p.Symbol, tr.Programs["stock_exit"], nil))
				tr.keep(file.Uprobe(p.Symbol, tr.Programs["enter_"+p.Symbol], nil))
			}
		}
		if o.linux510 {
			continue
		}
		tr.keep(file.UretprobeMulti(symbols, tr.Programs["call_exit_multi"], options))
		tr.keep(file.UprobeMulti(symbols, tr.Programs["call_enter_multi"], options))
	}
	for _, name := range []string{"on_exit", "on_exec", "on_fork"} {
		tr.keep(link.AttachTracing(link.TracingOptions{Program: tr.Programs[name]}))
	}
	return tr
}

func (tr *tracer) keep(l link.Link, err error) {
	tr.t.Helper()
	require.NoError(tr.t, err)
	tr.t.Cleanup(func() { l.Close() })
}

// read collects the events.
func (tr *tracer) read() {
	reader, err := ringbuf.NewReader(tr.Maps["operation_ring"])
	require.NoError(tr.t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			record, err := reader.Read()
			if errors.Is(err, os.ErrClosed) {
				return
			}
			if err != nil {
				continue
			}
			event, err := nccl.DecodeEvent(record.RawSample)
			if err != nil {
				tr.t.Errorf("event: %v", err)
				return
			}
			tr.mu.Lock()
			tr.events = append(tr.events, event)
			tr.mu.Unlock()
		}
	}()
	tr.t.Cleanup(func() { reader.Close(); <-done })
}

// settled returns the events once no more have arrived for a moment.
func (tr *tracer) settled() []nccl.Event {
	for last := -1; ; {
		tr.mu.Lock()
		n := len(tr.events)
		tr.mu.Unlock()
		if n == last {
			return tr.events
		}
		last = n
		time.Sleep(300 * time.Millisecond)
	}
}

// dump reads an iterator whole.
func (tr *tracer) dump(program, m string) []byte {
	tr.t.Helper()
	iter := bpftest.Iterate(tr.t, tr.Collection, program, m)
	defer iter.Close()
	r, err := iter.Open()
	require.NoError(tr.t, err)
	defer r.Close()
	var all bytes.Buffer
	_, err = all.ReadFrom(r)
	require.NoError(tr.t, err)
	return all.Bytes()
}

func (tr *tracer) communicators() []nccl.Communicator {
	return rowsOf(tr, "dump_communicators", "communicators_by_handle", nccl.CommunicatorBytes, nccl.DecodeCommunicator)
}

func (tr *tracer) operations() []nccl.Sum {
	return rowsOf(tr, "dump_operations", "operations_by_size", nccl.SumBytes, nccl.DecodeSum)
}

func (tr *tracer) peers() []nccl.Peer {
	return rowsOf(tr, "dump_peers", "operations_by_peer", nccl.PeerBytes, nccl.DecodePeer)
}

func rowsOf[T any](tr *tracer, program, m string, size int, decode func([]byte) (T, error)) (rows []T) {
	b := tr.dump(program, m)
	require.Zero(tr.t, len(b)%size, "rows of %s are not of %d bytes", m, size)
	for ; len(b) > 0; b = b[size:] {
		row, err := decode(b[:size])
		require.NoError(tr.t, err)
		rows = append(rows, row)
	}
	return rows
}

// drops are the reasons that were counted.
func (tr *tracer) drops() map[string]uint64 {
	type drop struct {
		Reason       [24]byte
		Count, Bytes uint64
	}
	counted := map[string]uint64{}
	b := tr.dump("dump_drops", "drops_by_reason")
	for size := binary.Size(drop{}); len(b) > 0; b = b[size:] {
		var d drop
		_, err := binary.Decode(b, binary.NativeEndian, &d)
		require.NoError(tr.t, err)
		if d.Count > 0 {
			counted[string(bytes.TrimRight(d.Reason[:], "\x00"))] = d.Count
		}
	}
	return counted
}

// python is the stack with that id, innermost first.
func (tr *tracer) python(id uint64) (functions []string) {
	raw, err := tr.Maps["stacks_by_id"].LookupBytes(id)
	require.NoError(tr.t, err)
	s, err := stack.DecodeStack(raw)
	require.NoError(tr.t, err)
	for _, f := range s.Python {
		b, err := tr.Maps["symbols_by_id"].LookupBytes(f.Symbol)
		require.NoError(tr.t, err)
		symbol, err := stack.DecodeSymbol(b)
		require.NoError(tr.t, err)
		functions = append(functions, symbol.Function)
	}
	return functions
}
