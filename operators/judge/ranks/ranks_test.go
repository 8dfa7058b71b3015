// SPDX-License-Identifier: Apache-2.0

package ranks

import (
	"context"
	"encoding/binary"
	"errors"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	gadgetcontext "github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-context"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators/simple"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gpu-gadgets/gpu-gadgets/internal/collective"
	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
	"github.com/gpu-gadgets/gpu-gadgets/operators/decode/nccl"
)

// gadget has the data sources of nccl_trace, with rows that a test makes up.
type gadget struct {
	communicators datasource.DataSource
	fields        map[string]datasource.FieldAccessor
	declared      error
	t             *testing.T
}

var communicatorFields = map[string]api.Kind{
	"process": api.Kind_Uint64, "communicator": api.Kind_Uint64, "identity": api.Kind_Uint64, "late": api.Kind_Uint32,
	"tid": api.Kind_Uint32, "rank": api.Kind_Int32, "size": api.Kind_Int32, "device": api.Kind_Int32, "name": api.Kind_String,
	"state": api.Kind_String, "collectives": api.Kind_Uint64, "completed_collectives": api.Kind_Uint64,
	"completed_collective_ns": api.Kind_Uint64, "stream": api.Kind_Uint64, "pending_covered_ns": api.Kind_Uint64,
	"pending_boot_ns": api.Kind_Uint64, "now_boot_ns": api.Kind_Uint64, "exit_boot_ns": api.Kind_Uint64,
	"stack_id": api.Kind_Uint64, "ring": api.Kind_Bytes,
	"parent": api.Kind_Uint64, "created_boot_ns": api.Kind_Uint64, "key": api.Kind_Int32, "parent_rank": api.Kind_Int32,
}

func (g *gadget) declare(gc operators.GadgetContext) error {
	g.fields = map[string]datasource.FieldAccessor{}
	var err error
	if g.communicators, err = gc.RegisterDataSource(datasource.TypeArray, communicators); err != nil {
		return err
	}
	proc, err := g.communicators.AddField("proc", api.Kind_Invalid)
	if err != nil {
		return err
	}
	for name, kind := range map[string]api.Kind{"pid": api.Kind_Uint32, "comm": api.Kind_String, "mntns_id": api.Kind_Uint64} {
		f, err := proc.AddSubField(name, kind)
		g.fields["proc."+name], g.declared = f, errors.Join(g.declared, err)
	}
	for name, kind := range communicatorFields {
		f, err := g.communicators.AddField(name, kind)
		g.fields[name], g.declared = f, errors.Join(g.declared, err)
	}
	return g.declared
}

// simulated is a rank.
type simulated struct {
	process *exec.Cmd
	rank    int
	issued  uint64
	entered collective.Time
	done    bool
	isNew   bool // it is in the call that creates the communicator
	isOld   bool // its communicator is older than the run, and no wait of it was seen
	isSplit bool // of the communicator that was split from that of all, with the key -rank; its own rank is not known
}

// ring is as the gadget writes it; operators/decode/nccl compares its mirror with the gadget.
func (s *simulated) ring(t *testing.T) []byte {
	t.Helper()
	var ring [nccl.Ring]nccl.Operation
	o := nccl.Operation{Seq: s.issued, Match: s.issued, EnterNS: uint64(s.entered), ReturnNS: uint64(s.entered) + 1000, Count: 1 << 20,
		Peer: -1, Op: uint8(collective.AllReduce), Type: uint8(collective.Float32)}
	if s.done {
		o.DoneNS, o.Flags = uint64(s.entered)+2000, nccl.Done
	}
	ring[s.issued%nccl.Ring] = o
	b, err := binary.Append(nil, binary.NativeEndian, ring)
	require.NoError(t, err)
	require.Len(t, b, nccl.Ring*operationSize)
	return b
}

// emit writes the rows as the gadget does at each of its reads.
func (g *gadget) emit(ranks []*simulated, now collective.Time) error {
	packet, err := g.communicators.NewPacketArray()
	if err != nil {
		return err
	}
	for _, s := range ranks {
		d := packet.New()
		done := s.issued - 1
		if s.done {
			done++
		}
		pid := uint32(100 + s.rank)
		if s.process.Process != nil {
			pid = uint32(s.process.Process.Pid)
		}
		row := values{
			"process": uint64(s.rank) + 1, "communicator": uint64(0x1000), "identity": uint64(0xabcdef0123), "rank": int32(s.rank), "size": int32(3),
			"proc.pid": pid, "proc.comm": "python3", "tid": pid, "state": "active", "collectives": s.issued,
			"completed_collectives": done, "now_boot_ns": uint64(now), "stream": uint64(0),
			"pending_covered_ns": uint64(now), "pending_boot_ns": uint64(now), "name": "world",
			"parent": uint64(0), "created_boot_ns": uint64(now) - uint64(time.Minute), "key": int32(0), "parent_rank": int32(-1),
		}
		if s.isNew {
			row["state"], row["communicator"], row["created_boot_ns"] = creating, uint64(1)<<63|uint64(pid), uint64(s.entered)
			row["collectives"], row["completed_collectives"] = uint64(0), uint64(0)
		}
		if s.isOld {
			row["late"], row["pending_covered_ns"], row["pending_boot_ns"] = uint32(1), uint64(0), uint64(0)
		}
		if s.isSplit {
			row["communicator"], row["identity"], row["name"], row["rank"], row["size"] = uint64(0x2000), uint64(0x5911700001), "split", int32(-1), int32(-1)
			row["parent"], row["key"], row["parent_rank"] = uint64(0xabcdef0123), int32(-s.rank), int32(s.rank)
		}
		err = errors.Join(err, put(g.fields, d, row), g.fields["ring"].PutBytes(d, s.ring(g.t)))
		if s.isNew {
			err = errors.Join(err, g.fields["ring"].PutBytes(d, make([]byte, nccl.Ring*operationSize)))
		}
		packet.Append(d)
	}
	return errors.Join(err, g.communicators.EmitAndRelease(packet))
}

func newRanks(t *testing.T) (out []*simulated) {
	t.Helper()
	for n := range 3 {
		command := exec.Command("sleep", "1000")
		require.NoError(t, command.Start())
		t.Cleanup(func() {
			_ = command.Process.Kill()
			_ = command.Wait()
		})
		out = append(out, &simulated{process: command, rank: n, issued: 486, entered: bootTime(), done: true})
	}
	return out
}

// seen is the output.
type seen struct {
	mu    sync.Mutex
	hangs []map[string]string
	table []map[string]string
}

func texts(ds datasource.DataSource, d datasource.Data, names ...string) map[string]string {
	out := map[string]string{}
	for _, name := range names {
		out[name], _ = ds.GetField(name).String(d)
	}
	return out
}

func (s *seen) subscribe(gc operators.GadgetContext) error {
	hangs, table := gc.GetDataSources()[Hangs], gc.GetDataSources()[Collectives]
	return errors.Join(
		hangs.Subscribe(func(_ datasource.DataSource, d datasource.Data) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			row := texts(hangs, d, "event", "reason", "text", "state", "line", "waited")
			waited, err := hangs.GetField("waited_ns").Uint64(d)
			row["waited"] = time.Duration(waited).String()
			s.hangs = append(s.hangs, row)
			return err
		}, 10000),
		table.SubscribeArray(func(_ datasource.DataSource, all datasource.DataArray) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.table = nil
			for n := range all.Len() {
				s.table = append(s.table, texts(table, all.Get(n), "verdict", "state", "operation", "line", "waits"))
			}
			return nil
		}, 10000))
}

func (s *seen) wait(t *testing.T, what string, is func() bool) {
	t.Helper()
	require.Eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return is()
	}, time.Minute, 20*time.Millisecond, what)
}

// run starts a gadget with the operator, and with others; check is called while it runs.
func run(t *testing.T, cfg Config, params map[string]string, check func(*gadget, *seen), others ...operators.DataOperator) {
	t.Helper()
	g, s := &gadget{t: t}, &seen{}
	o := New(cfg)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	producer := simple.New("producer", simple.WithPriority(-1000), simple.OnInit(g.declare))
	observer := simple.New("observer", simple.WithPriority(20000), simple.OnPreStart(s.subscribe),
		simple.OnStart(func(operators.GadgetContext) error {
			go func() {
				defer cancel()
				check(g, s)
			}()
			return nil
		}))
	all := map[string]string{}
	for k, v := range params {
		all["operator."+Name+"."+k] = v
	}
	require.NoError(t, gadgetcontext.New(ctx, "nccl_trace", gadgetcontext.WithDataOperators(append(others, producer, o, observer)...)).Run(all))
}

// faultyGPU has an error of the GPU of one process.
type faultyGPU struct {
	pid      uint32
	isClosed bool
}

func (b *faultyGPU) Of(pid uint32) []string {
	if pid != b.pid {
		return nil
	}
	return []string{"Xid 43 on its GPU 3, 12s earlier"}
}

func (b *faultyGPU) Close() { b.isClosed = true }

// TestStoppedRankIsNamed: through Inspektor Gadget, with processes that are really
// stopped.
func TestStoppedRankIsNamed(t *testing.T) {
	ranks := newRanks(t)
	culprit := uint32(ranks[1].process.Process.Pid)
	dump := func(context.Context, string, []uint32) (map[Thread]Trace, error) {
		return map[Thread]Trace{{culprit, culprit}: {Stack: stack.ParseFolded("main (train.py:60); step (train.py:41)")}}, nil
	}
	gpus := &faultyGPU{pid: culprit}
	run(t, Config{Dump: dump, GPUs: func() (GPUs, error) { return gpus, nil }}, map[string]string{paramHang: "3s"}, func(g *gadget, s *seen) {
		require.NoError(t, ranks[1].process.Process.Signal(unix.SIGSTOP))
		began, isDumped := bootTime(), false
		for _, n := range []int{0, 2} {
			ranks[n].issued, ranks[n].entered, ranks[n].done = 487, began, false
		}
		go func() {
			for t.Context().Err() == nil && g.emit(ranks, bootTime()) == nil {
				time.Sleep(200 * time.Millisecond)
				s.mu.Lock()
				for _, row := range s.table {
					isDumped = isDumped || row["verdict"] == "dead" && row["line"] == "step (train.py:41)"
				}
				if len(s.hangs) == 1 && isDumped && ranks[1].issued == 486 {
					ranks[1].issued, ranks[1].entered, ranks[1].done = 487, began+collective.Time(2*time.Second), true
					ranks[0].done, ranks[2].done = true, true
				}
				s.mu.Unlock()
			}
		}()
		s.wait(t, "verdict", func() bool { return len(s.hangs) > 0 })
		s.wait(t, "the line where it is now", func() bool { return isDumped })
		s.mu.Lock()
		found := s.hangs[0]
		s.mu.Unlock()
		require.Equal(t, "found", found["event"])
		require.Equal(t, "dead", found["reason"])
		require.Equal(t, "stopped", found["state"])
		require.True(t, strings.HasPrefix(found["text"], "rank 1 of 3 is stopped, before AllReduce 487 of communicator world (0xabcdef0123) (waited "), found["text"])
		require.True(t, strings.HasSuffix(found["text"], "; rank 1: Xid 43 on its GPU 3, 12s earlier"), found["text"])
		s.wait(t, "cleared", func() bool { return len(s.hangs) > 1 })
		s.mu.Lock()
		defer s.mu.Unlock()
		require.Equal(t, "cleared", s.hangs[1]["event"])
		require.Equal(t, "2s", s.hangs[1]["waited"], "it is seen later than it came")
	})
	require.True(t, gpus.isClosed)
}

// TestEndedRankIsNamed, and the table shows who waits.
func TestEndedRankIsNamed(t *testing.T) {
	ranks := newRanks(t)
	run(t, Config{}, map[string]string{paramHang: "2s"}, func(g *gadget, s *seen) {
		began := bootTime()
		for _, n := range []int{0, 2} {
			ranks[n].issued, ranks[n].entered, ranks[n].done = 487, began, false
		}
		require.NoError(t, g.emit(ranks, bootTime()))
		time.Sleep(100 * time.Millisecond)
		require.NoError(t, ranks[1].process.Process.Kill())
		_ = ranks[1].process.Wait()
		go func() {
			for t.Context().Err() == nil && g.emit(ranks, bootTime()) == nil {
				time.Sleep(200 * time.Millisecond)
			}
		}()
		s.wait(t, "verdict", func() bool { return len(s.hangs) > 0 })
		s.wait(t, "table", func() bool {
			return len(s.table) == 3 && s.table[0]["verdict"] == "dead" && s.table[0]["state"] == "gone" && s.table[1]["waits"] != ""
		})
		s.mu.Lock()
		defer s.mu.Unlock()
		require.Contains(t, s.hangs[0]["text"], "rank 1 of 3 has exited, before AllReduce 487")
	})
}

func TestWrongThreshold(t *testing.T) {
	g := &gadget{}
	producer := simple.New("producer", simple.WithPriority(-1000), simple.OnInit(g.declare))
	err := gadgetcontext.New(t.Context(), "nccl_trace", gadgetcontext.WithDataOperators(producer, New(Config{}))).
		Run(map[string]string{"operator.ranks.hang": "soon"})
	require.ErrorContains(t, err, "hang")
}

// TestThreadStates reads what the kernel says of a real process.
func TestThreadStates(t *testing.T) {
	process := newRanks(t)[0].process.Process
	pid := uint32(process.Pid)
	is := func(want collective.State) func() bool {
		return func() bool {
			state, _, started, ok := look("/proc", pid, pid)
			return ok && state == want && (started > 0 || want == collective.Gone)
		}
	}
	require.Eventually(t, is(collective.Sleeping), time.Minute, 10*time.Millisecond)
	require.NoError(t, process.Signal(unix.SIGSTOP))
	require.Eventually(t, is(collective.Stopped), time.Minute, 10*time.Millisecond)
	require.NoError(t, process.Kill())
	require.Eventually(t, is(collective.Zombie), time.Minute, 10*time.Millisecond)
	_, _ = process.Wait()
	require.Eventually(t, is(collective.Gone), time.Minute, 10*time.Millisecond)
}

// TestEveryFieldOfAnOperationIsRead, at its place in the gadget's struct.
func TestEveryFieldOfAnOperationIsRead(t *testing.T) {
	var ring [nccl.Ring]nccl.Operation
	ring[3] = nccl.Operation{Seq: 3, Match: 2, EnterNS: 11, ReturnNS: 12, DoneNS: 13, Count: 14, Stream: 15, Stack: 16, TID: 17, Peer: 1,
		Reduct: 4, Op: uint8(collective.Send), Type: uint8(collective.Float16), Flags: nccl.Done}
	ring[4] = nccl.Operation{Seq: 4, Match: 9, EnterNS: 21, Count: 1, Stream: 15, Peer: -1, Op: uint8(collective.AllReduce)}
	ring[5] = nccl.Operation{Seq: 5, EnterNS: 31, Op: uint8(collective.AllReduce), Flags: nccl.Failed}
	b, err := binary.Append(nil, binary.NativeEndian, ring)
	require.NoError(t, err)
	ops := appendOperations(nil, b, 15, 22, 99)
	require.Equal(t, []collective.Operation{
		{Seq: 2, Kind: collective.Send, Count: 14, DType: collective.Float16, Reduction: 4, Peer: 1, Stream: 15, Enter: 11, Return: 12, DoneBy: 13, Stack: 16},
		{Seq: 9, Kind: collective.AllReduce, Count: 1, Peer: collective.None, Stream: 15, Enter: 21, PendingAt: 99},
	}, ops)
}

// TestAQuietRankIsReadSeldom: one whose communicator has ranks elsewhere is read when it has
// been quiet, once for each pause, and not at every step of a slow job.
func TestAQuietRankIsReadSeldom(t *testing.T) {
	var dumps int
	read := make(chan struct{}, 1)
	i := &instance{cfg: Config{Dump: func(context.Context, string, []uint32) (map[Thread]Trace, error) {
		dumps++
		read <- struct{}{}
		return nil, nil
	}}, processes: map[uint64]*process{1: {pid: 7, changed: 1}}}
	quiet := []collective.Process{{ID: 1, PID: 7}}
	look := func(now collective.Time) int {
		before := dumps
		i.dump(t.Context(), nil, quiet, now)
		i.wait.Wait()
		for range dumps - before {
			<-read
		}
		return dumps
	}
	const second = collective.Time(time.Second)
	i.out = &output{}
	require.Equal(t, 1, look(100*second))
	require.Equal(t, 1, look(500*second), "it is where it was")
	i.processes[1].changed = 510 * second
	require.Equal(t, 2, look(530*second), "it has gone on meanwhile")
	i.processes[1].changed = 540 * second
	require.Equal(t, 2, look(560*second), "not yet again")
	require.Equal(t, 3, look(595*second))
}
