// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"fmt"
	"slices"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"

	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/internal/timeline/weave"
	"github.com/gpu-gadgets/gpu-gadgets/operators/decode/rows"
)

// inuse is the memory that processes hold of each device, from reading to reading. It is guarded by
// who calls it.
type inuse struct {
	held    map[holding]*weave.Inuse
	reading rows.Reading
}

type holding struct {
	process uint64
	device  int32
	isHost  bool
}

// read adds up the rows of a reading at a time: an entry for each process and device that
// holds something, or did at the reading before.
func (u *inuse) read(at uint64, source rows.Reader, all datasource.DataArray) []*weave.Inuse {
	now := map[holding]*weave.Inuse{}
	for _, row := range u.reading.Read(source, all) {
		if profile.LayerOf(row.ID.Kind) != profile.Driver {
			continue // blocks of PyTorch's pool lie in what the driver gave
		}
		key := holding{row.ID.Process, row.ID.Device, row.ID.Kind == "host"}
		if key.isHost {
			key.device = profile.UnknownDevice // it is in none
		}
		one := now[key]
		if one == nil {
			p := source.Process(row.Data)
			one = &weave.Inuse{
				Thread: weave.Thread{Process: p.ID, PID: p.PID, TID: p.PID, Comm: p.Comm},
				At:     at, Device: weave.DeviceOf(key.device), IsHost: key.isHost,
			}
			now[key] = one
		}
		one.Bytes += uint64(row.Values.InuseBytes)
	}
	var out []*weave.Inuse
	for key, before := range u.held {
		if now[key] == nil { // the process has ended
			gone := *before
			gone.At, gone.Bytes = at, 0
			out = append(out, &gone)
		}
	}
	for _, one := range now {
		out = append(out, one)
	}
	u.held = now
	slices.SortFunc(out, (*weave.Inuse).Compare)
	return out
}

// subscribeRows draws what the rows of cuda_alloc come to at each interval.
func (i *instance) subscribeRows(ds datasource.DataSource) error {
	source, err := rows.Bind(ds)
	if err != nil {
		return err
	}
	u := &inuse{}
	if err := ds.SubscribeArray(func(_ datasource.DataSource, all datasource.DataArray) error {
		i.mu.Lock()
		defer i.mu.Unlock()
		if i.rec == nil {
			return nil
		}
		for _, one := range u.read(bootNow(), source, all) {
			i.rec.merge.Add(one.At, one)
		}
		return nil
	}, subscription); err != nil {
		return fmt.Errorf("subscribe to %s: %w", ds.Name(), err)
	}
	return nil
}
