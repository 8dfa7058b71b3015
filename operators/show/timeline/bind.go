// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/utils/syscalls"

	"github.com/gpu-gadgets/gpu-gadgets/internal/timeline/weave"
	"github.com/gpu-gadgets/gpu-gadgets/operators/decode/symbolize"
)

// fields reads events by name. A field that is missing in a gadget is zero, except those
// that subscribe requests.
type fields struct {
	ds     datasource.DataSource
	absent []string
}

func (f *fields) find(name string) datasource.FieldAccessor {
	a := f.ds.GetField(name)
	if a == nil {
		f.absent = append(f.absent, name)
	}
	return a
}

// optional is for a field that may be missing.
func (f *fields) optional(name string) func(datasource.Data) string {
	a := f.ds.GetField(name)
	return func(d datasource.Data) string {
		if a == nil {
			return ""
		}
		s, _ := a.String(d)
		return s
	}
}

func (f *fields) u64(name string) func(datasource.Data) uint64 {
	a := f.find(name)
	return func(d datasource.Data) uint64 {
		if a == nil {
			return 0
		}
		n, _ := a.Uint64(d)
		return n
	}
}

func (f *fields) u32(name string) func(datasource.Data) uint32 {
	a := f.find(name)
	return func(d datasource.Data) uint32 {
		if a == nil {
			return 0
		}
		n, _ := a.Uint32(d)
		return n
	}
}

func (f *fields) i32(name string) func(datasource.Data) int32 {
	a := f.find(name)
	return func(d datasource.Data) int32 {
		if a == nil {
			return 0
		}
		n, _ := a.Int32(d)
		return n
	}
}

func (f *fields) text(name string) func(datasource.Data) string {
	a := f.find(name)
	return func(d datasource.Data) string {
		if a == nil {
			return ""
		}
		s, _ := a.String(d)
		return s
	}
}

// who returns the thread of an event.
func (f *fields) who() func(datasource.Data) weave.Thread {
	process, pid, tid, comm := f.u64("process"), f.u32("proc.pid"), f.u32("proc.tid"), f.text("proc.comm")
	return func(d datasource.Data) weave.Thread {
		return weave.Thread{Process: process(d), PID: pid(d), TID: tid(d), Comm: comm(d)}
	}
}

// kinds of calls by the word in the field "operation".
var kinds = map[string]weave.Kind{
	"launch": weave.Launch, "graph": weave.Launch, "copy": weave.Copy, "prefetch": weave.Copy,
	"set": weave.Set, "wait": weave.Wait, "load": weave.Load, "unload": weave.Load, "library": weave.Span,
}

// bindCalls reads call_events.
func bindCalls(f *fields, s *stacks) func(datasource.Data) *weave.Call {
	who, start, end := f.who(), f.u64("start_boot_ns"), f.u64("end_boot_ns")
	operation, function, kernel, direction := f.text("operation"), f.text("api"), f.optional("kernel"), f.text("direction")
	stream, bytes, shared, stack := f.u64("stream"), f.u64("bytes"), f.u32("shared_bytes"), f.u64("stack_id")
	status, reason, device := f.i32("status"), f.optional("error"), f.i32("device")
	var grid, block [3]func(datasource.Data) uint32
	for n, axis := range []string{"x", "y", "z"} {
		grid[n], block[n] = f.u32("grid_"+axis), f.u32("block_"+axis)
	}
	return func(d datasource.Data) *weave.Call {
		c := &weave.Call{
			Thread: who(d), Start: start(d), End: end(d), Function: function(d), Direction: direction(d),
			Device: weave.DeviceOf(device(d)), Stream: stream(d), Bytes: bytes(d), Shared: shared(d),
		}
		var known bool
		if c.Kind, known = kinds[operation(d)]; !known {
			c.Kind = weave.Other
		}
		if c.Kind == weave.Launch {
			c.Kernel = kernel(d)
			for n := range 3 {
				c.Grid[n], c.Block[n] = grid[n](d), block[n](d)
			}
		}
		if n := status(d); n != 0 {
			if c.Error = reason(d); c.Error == "" || c.Error == "CUDA_SUCCESS" {
				c.Error = "status " + strconv.Itoa(int(n)) // of a library
			}
		}
		c.Stack = s.get(c.Process, c.PID, stack(d))
		return c
	}
}

// bindOperations reads operation_events: an operation's call when it has returned, and
// the operation itself, from its call on, when it is known to be done.
func bindOperations(f *fields, s *stacks) func(datasource.Data) *weave.Call {
	who, tid, what, op := f.who(), f.u32("tid"), f.text("what"), f.text("op")
	enter, returned, done := f.u64("enter_boot_ns"), f.u64("return_boot_ns"), f.u64("done_boot_ns")
	communicator, bytes, stack := f.u64("communicator"), f.u64("bytes"), f.u64("stack_id")
	rank, size, peer := f.i32("rank"), f.i32("size"), f.i32("peer")
	identity, match, device := f.u64("identity"), f.u64("match"), f.i32("device")
	return func(d datasource.Data) *weave.Call {
		c := &weave.Call{
			Thread: who(d), Start: enter(d), End: returned(d), Function: "nccl" + op(d), Kind: weave.Collective,
			Device: weave.DeviceOf(device(d)), Bytes: bytes(d), Stack: s.get(who(d).Process, who(d).PID, stack(d)),
		}
		c.TID = tid(d)
		if to := peer(d); to >= 0 {
			c.Direction = "peer " + strconv.Itoa(int(to))
		}
		switch what(d) {
		case "issued":
			return c
		case "failed":
			c.Error = "failed"
		}
		c.End, c.Stream = max(done(d), c.End), communicator(d)
		c.Track = fmt.Sprintf("NCCL, rank %d of %d", rank(d), size(d))
		if id := identity(d); id != 0 && rank(d) >= 0 { // else its numbers are its own
			switch op(d) {
			case "Send":
				c.Pair = &weave.Pair{Communicator: id, Sender: rank(d), Receiver: peer(d), Number: match(d)}
			case "Recv":
				c.Pair = &weave.Pair{Communicator: id, Sender: peer(d), Receiver: rank(d), Number: match(d)}
			}
		}
		if rank(d) < 0 { // a communicator that was made before attach
			c.Track = "NCCL, 0x" + strconv.FormatUint(c.Stream, 16)
		}
		return c
	}
}

// enum host_kind and enum host_state of bpf/host/events.h.
var states = [...]string{"off CPU", "preempted", "sleeping", "blocked", "stopped"}

// bindHost reads host_events.
func bindHost(f *fields, s *stacks) func(datasource.Data) *weave.Host {
	who, start, end, kind := f.who(), f.u64("start_boot_ns"), f.u64("end_boot_ns"), f.u32("kind_raw")
	state, number, cpu, wchan, file := f.u32("state_raw"), f.i32("syscall"), f.u32("cpu"), f.text("wchan"), f.text("file")
	bytes, fileBytes, anonBytes, stack := f.u64("bytes"), f.u64("file_bytes"), f.u64("anon_bytes"), f.u64("stack_id")
	result := f.find("result")
	return func(d datasource.Data) *weave.Host {
		h := &weave.Host{Thread: who(d), Kind: weave.HostKind(kind(d)), Start: start(d), End: end(d)}
		switch h.Kind {
		case weave.Ran:
			h.CPU = cpu(d)
		case weave.Slept:
			h.Name, h.Reason = states[min(int(state(d)), len(states)-1)], wchan(d)
		case weave.Syscall:
			h.Name, h.File, h.Bytes = syscallName(number(d)), file(d), bytes(d)
			h.Result, _ = result.Int64(d)
		case weave.Sample:
			h.Stack = s.get(h.Process, h.PID, stack(d))
		case weave.Memory:
			h.FileBytes, h.AnonBytes = fileBytes(d), anonBytes(d)
		}
		return h
	}
}

func syscallName(number int32) string {
	if name, ok := syscalls.GetSyscallNameByNumber(int(number)); ok {
		return name
	}
	return "syscall " + strconv.Itoa(int(number))
}

// callSources are the data sources whose events are calls; a gadget has one of them.
var callSources = map[string]func(*fields, *stacks) func(datasource.Data) *weave.Call{
	callEvents: bindCalls, operationEvents: bindOperations,
}

// subscribe to the events to write, and to their losses.
func (i *instance) subscribe(gc operators.GadgetContext) error {
	sources := gc.GetDataSources()
	var err error
	if rows := sources[allocRows]; rows != nil && i.guest != nil {
		err = i.subscribeRows(rows)
	} else {
		err = i.subscribeEvents(gc, sources)
	}
	if drops := sources["drops"]; drops != nil && err == nil {
		f := &fields{ds: drops}
		reason, count := f.text("reason"), f.u64("count")
		err = i.each(f, func(d datasource.Data) {
			if n := count(d); n > 0 {
				i.drop(reason(d), n)
			}
		})
	}
	return err
}

func (i *instance) subscribeEvents(gc operators.GadgetContext, sources map[string]datasource.DataSource) error {
	named, ok := symbolize.FromContext(gc)
	if !ok {
		return errors.New("a timeline needs the operator symbolize, which is not active")
	}
	s := newStacks(named)
	for name, bind := range callSources {
		if sources[name] == nil {
			continue
		}
		f := &fields{ds: sources[name]}
		read := bind(f, s)
		if err := i.each(f, func(d datasource.Data) { i.rec.call(read(d)) }); err != nil {
			return err
		}
	}
	if kernels := sources[deviceEvents]; kernels != nil {
		f := &fields{ds: kernels}
		read := bindKernels(f, s)
		if err := i.each(f, func(d datasource.Data) { i.rec.ran(read(d)) }); err != nil {
			return err
		}
	}
	if host := sources[hostEvents]; host != nil && len(i.with) > 0 {
		f := &fields{ds: host}
		read := bindHost(f, s)
		return i.each(f, func(d datasource.Data) { i.rec.host(read(d)) })
	}
	return nil
}

// each calls use with every event, one at a time.
func (i *instance) each(f *fields, use func(datasource.Data)) error {
	if len(f.absent) > 0 {
		return fmt.Errorf("data source %s lacks %v", f.ds.Name(), f.absent)
	}
	err := f.ds.Subscribe(func(_ datasource.DataSource, d datasource.Data) error {
		i.mu.Lock()
		defer i.mu.Unlock()
		if i.rec != nil {
			use(d)
		}
		return nil // an error would keep the event from other subscribers
	}, subscription)
	if err != nil {
		return fmt.Errorf("subscribe to %s: %w", f.ds.Name(), err)
	}
	return nil
}
