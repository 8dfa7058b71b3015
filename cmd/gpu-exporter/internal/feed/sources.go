// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"fmt"
	"hash/maphash"
	"math"
	"time"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"

	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/operators/decode/rows"
	"github.com/gpu-gadgets/gpu-gadgets/operators/send/metrics"
)

// source is one data source of a connection.
type source interface {
	// decode keeps a packet for read. Before the connection has settled, only the
	// newest is needed, or all packets of events.
	decode(payload []byte, isSettled bool) error
	// read returns Untrusted if the packet cannot be believed.
	read(now time.Time) error
}

// bind returns nil for data sources that are not for us.
func (f *Feed) bind(announced *api.DataSource) (source, error) {
	switch announced.GetName() {
	case "allocs", "samples", "calls", "ooms", "drops":
	default:
		return nil, nil
	}
	ds, err := datasource.NewFromAPI(announced)
	if err != nil {
		return nil, err
	}
	switch {
	case ds.Name() == "ooms" && ds.Type() == datasource.TypeSingle:
		events, err := rows.BindOOMs(ds)
		return &ooms{feed: f, ds: ds, names: f.namesOf(ds), events: events, kind: ds.GetField("kind"), device: ds.GetField("device")}, err
	case ds.Name() == "drops" && ds.Type() == datasource.TypeArray:
		d := &drops{feed: f, ds: ds, reason: ds.GetField("reason"), count: ds.GetField("count"), bytes: ds.GetField("bytes")}
		if d.reason == nil || d.count == nil || d.bytes == nil || f.cfg.Store == nil {
			return nil, nil
		}
		return d, nil
	case rows.Find(map[string]datasource.DataSource{ds.Name(): ds}) == nil:
		return nil, nil
	case f.cfg.Sender == nil && (f.cfg.Store == nil || ds.Name() != "allocs"):
		return nil, nil // not sent anywhere: metrics are of memory only
	}
	bound, err := rows.Bind(ds)
	if err != nil {
		return nil, err
	}
	field := ds.GetField("stack")
	if field == nil {
		return nil, fmt.Errorf("it has no field stack: the gadget's image was built without its WASM module (make images), or runs without names of stacks")
	}
	return &table{feed: f, source: bound, text: field, names: f.namesOf(ds)}, nil
}

// table is the rows of allocs, samples or calls.
type table struct {
	feed   *Feed
	source rows.Source
	text   datasource.FieldAccessor
	names  names
	packet datasource.PacketArray // nil: there was none
}

func (t *table) decode(payload []byte, _ bool) error {
	p, err := t.source.Data.NewPacketArrayFromRaw(payload)
	if err != nil {
		return fmt.Errorf("read rows of %s: %w", t.source.Data.Name(), err)
	}
	t.packet = p
	return nil
}

func (t *table) read(now time.Time) error {
	if t.packet == nil {
		return nil
	}
	if err := t.check(); err != nil {
		return err
	}
	t.feed.rows(t, now)
	t.packet = nil
	return nil
}

// check is before any row counts.
func (t *table) check() error {
	for n := range t.packet.Len() {
		d := t.packet.Get(n)
		if err := t.names.check(d); err != nil {
			return err
		}
		if t.source.Subject == profile.Memory {
			v := t.source.Values(d)
			if err := checkRow(&v); err != nil {
				return err
			}
		}
	}
	return nil
}

// stack reads the stack that a module or operator has written.
func (t *table) stack(d datasource.Data) parsed {
	text, _ := t.text.String(d)
	return t.feed.cfg.Texts.parse(text)
}

// textSeed is of versions of stacks.
var textSeed = maphash.MakeSeed()

// version of the stack: a daemon may have other names for it later. A text of kilobytes is hashed faster than it is
// copied, or found among others.
func (t *table) version(d datasource.Data) uint64 {
	return t.source.Version(d, maphash.Bytes(textSeed, t.text.Get(d)))
}

// ooms are events: each one counts.
type ooms struct {
	feed         *Feed
	ds           datasource.DataSource
	events       *rows.OOMs
	names        names
	kind, device datasource.FieldAccessor
	waiting      [][]byte // payloads: what they are decoded to may be many times larger
	bytes        int      // of them
}

const (
	// maxOOM bounds one refused allocation, in bytes: a message that other clients accept.
	maxOOM = 4 << 20
	// maxWaiting bounds those that wait for read: ring of 32 KiB each. One takes about 10 KiB, most
	// of it for stacks.
	maxWaiting = 32 << 20
)

func (o *ooms) decode(payload []byte, _ bool) error {
	if len(payload) > maxOOM {
		return fmt.Errorf("a refused allocation has %d bytes", len(payload))
	}
	o.waiting = append(o.waiting, payload)
	o.bytes += len(payload)
	for len(o.waiting) > ring || o.bytes > maxWaiting { // more than a daemon keeps
		o.bytes -= len(o.waiting[0])
		o.waiting[0] = nil // the array remains
		o.waiting = o.waiting[1:]
	}
	return nil
}

func (o *ooms) read(now time.Time) error {
	for _, payload := range o.waiting {
		d, err := o.ds.NewPacketSingleFromRaw(payload)
		if err != nil {
			return fmt.Errorf("read a refused allocation: %w", err)
		}
		if err := o.names.check(d); err != nil {
			return err
		}
		oom, err := o.events.Read(d, o.feed, now)
		if err != nil {
			oom.Holders = nil
		}
		if s := stackText(o.ds, d); s != "" {
			oom.Stack = o.feed.cfg.Texts.parse(s).stack
		}
		o.feed.failed(oom, o.series(d))
	}
	o.waiting, o.bytes = nil, 0
	return nil
}

// series is without the process.
func (o *ooms) series(d datasource.Data) metrics.Series {
	s := metrics.Series{Device: profile.UnknownDevice}
	if o.kind != nil {
		s.Kind, _ = o.kind.String(d)
	}
	if o.device != nil {
		if device, err := o.device.Int32(d); err == nil {
			s.Device = device
		}
	}
	return s
}

func stackText(ds datasource.DataSource, d datasource.Data) string {
	field := ds.GetField("stack")
	if field == nil {
		return ""
	}
	text, _ := field.String(d)
	return text
}

// drops are counters by reason.
type drops struct {
	feed                 *Feed
	ds                   datasource.DataSource
	reason, count, bytes datasource.FieldAccessor
	packet               datasource.PacketArray
}

func (s *drops) decode(payload []byte, _ bool) error {
	p, err := s.ds.NewPacketArrayFromRaw(payload)
	if err != nil {
		return fmt.Errorf("read drops: %w", err)
	}
	s.packet = p
	return nil
}

func (s *drops) read(time.Time) error {
	if s.packet == nil || s.feed.metrics() == nil {
		return nil
	}
	for n := range s.packet.Len() {
		d := s.packet.Get(n)
		reason, _ := s.reason.String(d)
		count, _ := s.count.Uint64(d)
		bytes, _ := s.bytes.Uint64(d)
		s.feed.run.Drop(reason, clamp(count), clamp(bytes))
	}
	s.packet = nil
	return nil
}

func clamp(v uint64) int64 { return int64(min(v, math.MaxInt64)) }
