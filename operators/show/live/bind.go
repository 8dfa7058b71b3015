// SPDX-License-Identifier: Apache-2.0

package live

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"

	"github.com/gpu-gadgets/gpu-gadgets/internal/format/screen"
	"github.com/gpu-gadgets/gpu-gadgets/internal/format/top"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile/recording"
	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
	"github.com/gpu-gadgets/gpu-gadgets/operators/decode/drops"
	"github.com/gpu-gadgets/gpu-gadgets/operators/decode/rows"
	"github.com/gpu-gadgets/gpu-gadgets/operators/decode/symbolize"
	"github.com/gpu-gadgets/gpu-gadgets/operators/judge/ooms"
)

// bind subscribes to all that is shown of the gadget.
func (i *instance) bind(gc operators.GadgetContext) error {
	sources := gc.GetDataSources()
	if ds := rows.Find(sources); ds != nil && i.shows(ds.Name()) {
		if err := i.bindRows(gc, ds); err != nil {
			return err
		}
	}
	var errs []error
	bind := func(name string, to func(datasource.DataSource) error) {
		if ds := sources[name]; ds != nil {
			if err := to(ds); err != nil {
				errs = append(errs, fmt.Errorf("subscribe to %s: %w", name, err))
			}
		}
	}
	for name, to := range map[string]func(datasource.DataSource) error{"collectives": i.bindRanks, "hangs": i.bindHangs, "ooms": i.bindOOMs} {
		if i.shows(name) {
			bind(name, to)
		}
	}
	// What the status line is made of.
	bind("attachments", i.bindAttachments)
	bind("drops", i.bindDrops)
	bind("pools", i.bindPools)
	bind("buffers", i.bindBuffers)
	return errors.Join(errs...)
}

func (i *instance) bindRows(gc operators.GadgetContext, ds datasource.DataSource) error {
	source, err := rows.Bind(ds)
	if err != nil {
		return err
	}
	stacks, ok := symbolize.FromContext(gc)
	if !ok {
		return errors.New("the table needs the operator symbolize, which is not active")
	}
	known := recording.Recording{Tenant: i.tenant}
	var reading rows.Reading
	return ds.SubscribeArray(func(_ datasource.DataSource, all datasource.DataArray) error {
		i.mu.Lock() // callbacks are concurrent
		defer i.mu.Unlock()
		now := time.Now()
		known.Begin(now)
		for _, r := range reading.Read(source, all) {
			id, d := r.ID, r.Data
			named := stacks.Stack(id.Process, source.PID(d), id.StackID)
			known.See(id, r.Values, source.Version(d, named.Version), func() profile.Row {
				return profile.Row{
					Process: source.Process(d), Kind: id.Kind, Device: id.Device,
					Stack: rows.Stack(id, source.Kernel(d), named.Stack),
				}
			})
		}
		known.End()
		i.screen.rows(source.Subject, now, currentRows(&known))
		return nil // an error would keep the rows from other subscribers
	}, subscription)
}

// currentRows are those of the table. A kernel's name is the leaf of its stack (rows.Stack): a row that the recording forgets
// leaves nothing behind.
func currentRows(known *recording.Recording) []top.Row {
	all := make([]top.Row, 0, known.Len())
	known.Each(func(_ profile.RowID, row *profile.Row) {
		kernel := ""
		if len(row.Stack) > 0 && row.Stack[0].Kind == stack.KindKernel {
			kernel = row.Stack[0].Function
		}
		all = append(all, top.Row{Row: *row, Kernel: kernel})
	})
	return all
}

// reader reads fields by name; what is absent is empty.
type reader struct{ ds datasource.DataSource }

func (r reader) text(name string) func(datasource.Data) string {
	f := r.ds.GetField(name)
	return func(d datasource.Data) string {
		if f == nil {
			return ""
		}
		s, _ := f.String(d)
		return screen.Clean(s)
	}
}

func (r reader) number(name string) func(datasource.Data) int64 {
	f := r.ds.GetField(name)
	return func(d datasource.Data) int64 {
		if f == nil {
			return 0
		}
		if v, err := f.Uint64(d); err == nil {
			return int64(min(v, math.MaxInt64)) // a refused request may have more bytes
		}
		if v, err := f.Uint32(d); err == nil {
			return int64(v)
		}
		v, _ := f.Int32(d)
		return int64(v)
	}
}

func (i *instance) bindAttachments(ds datasource.DataSource) error {
	r := reader{ds}
	pid, symbols, status, path, failure, comm := r.number("pid"), r.number("symbols"), r.text("status"), r.text("path"), r.text("error"), r.text("comm")
	build := r.text("build_id")
	return ds.Subscribe(func(_ datasource.DataSource, d datasource.Data) error {
		i.screen.attached(attachment{pid: pid(d), functions: symbols(d), status: status(d), path: path(d), build: build(d), failure: failure(d), comm: comm(d)})
		return nil
	}, subscription)
}

func (i *instance) bindDrops(ds datasource.DataSource) error {
	r := reader{ds}
	reason, count, bytes := r.text("reason"), r.number("count"), r.number("bytes")
	return ds.Subscribe(func(_ datasource.DataSource, d datasource.Data) error {
		i.screen.dropped(ds, drops.Count{Reason: reason(d), Count: uint64(count(d)), Bytes: uint64(bytes(d))})
		return nil
	}, subscription)
}

func (i *instance) bindOOMs(ds datasource.DataSource) error {
	from := ooms.NewReader(ds)
	return ds.Subscribe(func(_ datasource.DataSource, d datasource.Data) error {
		f := from.Read(d)
		m := message{kind: "refusal", of: fmt.Sprint(f.PID), key: "oom ", style: screen.Red, counted: true}
		m.text = fmt.Sprintf("out of memory: %s; %s", f.Refusal(), f.Held())
		if f.API != profile.PoolAPI && !f.IsHost && i.screen.hasPool(f.PID) {
			m.kind, m.key, m.style = "retry", "retry ", screen.Yellow
			m.text = fmt.Sprintf("the driver refused %s[%d] %s; if PyTorch's pool asked, it returns its cache and asks again", f.Comm, f.PID, f.Request())
		}
		if !f.LacksMemory() {
			m.kind, m.key, m.style = "failure", "failed ", screen.Yellow
			m.text = fmt.Sprintf("allocation failed: %s[%d] %s", f.Comm, f.PID, f.Request())
		}
		m.key += fmt.Sprint(f.PID, f.API, f.Frame, f.Device)
		m.text = screen.Clean(m.text)
		i.screen.message(m)
		return nil
	}, subscription)
}

func (i *instance) bindPools(ds datasource.DataSource) error {
	r := reader{ds}
	pid, device, allocated, reserved := r.number("proc.pid"), r.number("device"), r.number("allocated_bytes"), r.number("reserved_bytes")
	each := func(d datasource.Data) pool {
		return pool{pid(d), int32(device(d)), allocated(d), reserved(d)}
	}
	if ds.Type() == datasource.TypeSingle {
		return nil
	}
	return ds.SubscribeArray(func(_ datasource.DataSource, all datasource.DataArray) error {
		var pools []pool
		for n := range all.Len() {
			pools = append(pools, each(all.Get(n)))
		}
		i.screen.pools(pools)
		return nil
	}, subscription)
}

// bindBuffers takes in what NCCL holds; without --communicators there is nothing.
func (i *instance) bindBuffers(ds datasource.DataSource) error {
	if ds.GetField("communicator") == nil || ds.Type() == datasource.TypeSingle {
		return nil
	}
	r := reader{ds}
	pid, communicator, name, state, where := r.number("proc.pid"), r.text("communicator"), r.text("name"), r.text("state"), r.text("where")
	rank, size, inuse := r.number("rank"), r.number("size"), r.number("inuse_bytes")
	return ds.SubscribeArray(func(_ datasource.DataSource, all datasource.DataArray) error {
		var found []profile.CommunicatorMemory
		for n := range all.Len() {
			d := all.Get(n)
			found = append(found, profile.CommunicatorMemory{PID: uint32(pid(d)), Communicator: communicator(d), Name: name(d), State: state(d),
				Rank: int32(rank(d)), Size: int32(size(d)), Line: where(d), Bytes: inuse(d)})
		}
		i.screen.communicators(profile.SumCommunicators(found))
		return nil
	}, subscription)
}

func (i *instance) bindHangs(ds datasource.DataSource) error {
	r := reader{ds}
	event, reason, text, comm, since := r.text("event"), r.text("reason"), r.text("text"), r.text("communicator"), r.number("since_boot_ns")
	return ds.Subscribe(func(_ datasource.DataSource, d datasource.Data) error {
		m := message{kind: "verdict", of: comm(d), key: fmt.Sprint("hang ", comm(d), since(d)), text: reason(d) + ": " + text(d), style: screen.Red}
		switch event(d) {
		case "cleared":
			m.style, m.text = screen.Green, "cleared, "+m.text
		case "ras":
			m.style, m.key = screen.Plain, "ras "+m.key
			m.text = text(d)
		case "late":
			m.style, m.text = screen.Yellow, text(d)
		}
		if reason(d) == "straggler" {
			m.style = screen.Yellow
		}
		i.screen.message(m)
		return nil
	}, subscription)
}

// rankColumns in the order of the screen; the numbers are the order in which they are left
// out.
func rankColumns() []screen.Column {
	return []screen.Column{
		{Title: "RANK", Right: true}, {Title: "PID", Right: true, Drop: 3}, {Title: "PROCESS", Drop: 8}, {Title: "COMMUNICATOR", Drop: 7},
		{Title: "ISSUED", Right: true, Drop: 4}, {Title: "DONE", Right: true, Drop: 5}, {Title: "OPERATION", Drop: 6},
		{Title: "WAITS", Right: true, Drop: 2}, {Title: "STATE", Drop: 1}, {Title: "VERDICT"},
		{Title: "LINE", Shorten: screen.ShortenFrame, Min: 28},
	}
}

func (i *instance) bindRanks(ds datasource.DataSource) error {
	r := reader{ds}
	rank, size, pid, comm, name, id := r.number("rank"), r.number("size"), r.number("proc.pid"), r.text("proc.comm"), r.text("name"), r.text("communicator")
	issued, done, operation, waits := r.number("issued"), r.number("done"), r.text("operation"), r.text("waits")
	state, verdict, line, own := r.text("state"), r.text("verdict"), r.text("line"), r.text("user_line")
	read := func(d datasource.Data) screen.Row {
		communicator := name(d)
		if communicator == "" {
			communicator = id(d)
		}
		where := own(d)
		if where == "" {
			where = line(d)
		}
		of := ""
		if size(d) > 0 {
			of = fmt.Sprintf("/%d", size(d))
		}
		row := screen.Row{Cells: []string{
			fmt.Sprintf("%d%s", rank(d), of), fmt.Sprint(pid(d)), comm(d), communicator, fmt.Sprint(issued(d)), fmt.Sprint(done(d)),
			operation(d), strings.TrimSpace(waits(d)), state(d), verdict(d), where,
		}}
		if verdict(d) != "" {
			row.Style = screen.Red
		}
		return row
	}
	return ds.SubscribeArray(func(_ datasource.DataSource, all datasource.DataArray) error {
		table := screen.Table{Columns: rankColumns(), Sorted: -1}
		for n := range all.Len() {
			table.Rows = append(table.Rows, read(all.Get(n)))
		}
		i.screen.ranks(table)
		return nil
	}, subscription)
}
