// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"errors"
	"fmt"
	"time"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"

	"github.com/gpu-gadgets/gpu-gadgets/operators/judge/ranks"
)

// rankTable is a table of nccl_trace, of which only the newest packet counts.
type rankTable struct {
	feed   *Feed
	ds     datasource.DataSource
	take   ranks.Take
	names  names
	packet datasource.PacketArray // nil: there was none
}

// HasRanks reports whether an instance has ranks of NCCL, which are judged together with those of
// all nodes.
func HasRanks(info *api.GadgetInfo) bool {
	for _, ds := range info.GetDataSources() {
		if ds.GetName() == "communicators" {
			return true
		}
	}
	return false
}

// bindRanks returns nil for data sources that are not of nccl_trace.
func (f *Feed) bindRanks(announced *api.DataSource) (source, error) {
	if f.cfg.Ranks == nil {
		return nil, nil
	}
	switch announced.GetName() {
	case "communicators", "peers", ranks.Collectives:
	default:
		return nil, nil
	}
	ds, err := datasource.NewFromAPI(announced)
	if err != nil {
		return nil, err
	}
	take, err := f.cfg.Ranks.Table(ds)
	if err != nil || take == nil {
		return nil, err
	}
	return &rankTable{feed: f, ds: ds, take: take, names: f.namesOf(ds)}, nil
}

func (t *rankTable) decode(payload []byte, _ bool) error {
	p, err := t.ds.NewPacketArrayFromRaw(payload)
	if err != nil {
		return fmt.Errorf("read rows of %s: %w", t.ds.Name(), err)
	}
	t.packet = p
	return nil
}

func (t *rankTable) read(now time.Time) error {
	if t.packet == nil {
		return nil
	}
	packet := t.packet
	t.packet = nil
	for n := range packet.Len() {
		if err := t.names.check(packet.Get(n)); err != nil {
			return err
		}
	}
	err := t.take(packet, now)
	if errors.Is(err, ranks.ErrClock) {
		return &Untrusted{WrongClock, err.Error()}
	}
	if err != nil {
		t.feed.warn(err)
	}
	return nil
}
