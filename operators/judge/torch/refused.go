// SPDX-License-Identifier: Apache-2.0

package torch

import (
	"errors"
	"fmt"
	"time"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
)

const (
	oomsSource = "ooms"
	// refusedRest bounds what a program costs that tries again and again, to one part in so
	// many of a core: there may be 10⁵ blocks to read.
	refusedRest = 10
)

// unused are the bytes that a pool that refused does not use, by the reason why. A
// pool has given back what it could before it refuses.
type unused struct {
	pieces uint64 // gaps between blocks that are smaller than the request
	larger uint64 // gaps in segments for larger tensors, which a small one may not use
	apart  uint64 // gaps that are large enough: for another stream, or of a private pool
	kept   uint64 // segments without a block: those of private pools are not given back
}

// unused returns what is between the blocks of a pool with these totals, and what is elsewhere.
// False: the blocks that were seen are not those of the totals, be it that more than a
// hundredth is from before attach or that some were given back since.
//
// An area without a block may not be PyTorch's, and a segment from before attach was not
// seen, so the smaller of the two sums is what the pool keeps.
func (f fit) unused(allocated, reserved, empty uint64) (unused, bool) {
	if f.used > allocated || allocated-f.used > reserved/100 || f.outside > reserved/100 || reserved < allocated {
		return unused{}, false
	}
	rest := reserved - allocated
	u := unused{kept: min(rest, reserved-min(reserved, f.held), empty)}
	u.apart = min(rest-u.kept, f.usable)
	u.larger = min(rest-u.kept-u.apart, f.larger)
	u.pieces = rest - u.kept - u.apart - u.larger
	return u, true
}

// refused reads how the pool of a device is cut up at this moment.
func (c *cuts) refused(process uint64, device int32, requested, allocated, reserved uint64) (unused, bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	began := time.Now()
	if reserved < allocated+requested || began.Before(c.rest) { // it would not have been enough
		return unused{}, false, nil
	}
	defer func() { c.rest = began.Add(refusedRest * time.Since(began)) }()
	all, err := c.lays(func(id uint64) bool { return id == process })
	if err != nil || all[process] == nil {
		return unused{}, false, err
	}
	found := fitting(all[process].areas, all[process].blocks, requested)
	u, ok := found[device].unused(allocated, reserved, found[device].empty+found[noDevice].empty)
	return u, ok, nil
}

// addUnused adds to the events of a pool that refused what it does not use, by why.
func (i *instance) addUnused(gc operators.GadgetContext) error {
	ds := gc.GetDataSources()[oomsSource]
	if ds == nil {
		return nil
	}
	from, err := fieldsOf(ds, "process", "device", "requested_bytes", "pool_allocated_bytes", "pool_reserved_bytes")
	if err != nil {
		return err
	}
	to := map[string]datasource.FieldAccessor{}
	for name, description := range map[string]string{
		"pool_pieces_bytes": "Of what the pool does not use: gaps between tensors that are too small. All four 0: not known",
		"pool_larger_bytes": "Unused bytes of the pool in segments for larger tensors, where at most 1 MiB was requested: PyTorch keeps small ones apart",
		"pool_apart_bytes":  "Unused bytes of the pool in gaps that are large enough, but belong to another stream or a private pool",
		"pool_kept_bytes":   "Of what the pool does not use: segments without a tensor that it does not give back, as those of CUDA graphs",
	} {
		if to[name], err = ds.AddField(name, api.Kind_Uint64, datasource.WithAnnotations(map[string]string{
			"description": description, "columns.hidden": "true",
		})); err != nil {
			return fmt.Errorf("add field %s to %s: %w", name, ds.Name(), err)
		}
	}
	return ds.Subscribe(func(_ datasource.DataSource, d datasource.Data) error {
		number := func(name string) uint64 {
			n, _ := from[name].Uint64(d)
			return n
		}
		if number("pool_reserved_bytes") == 0 || i.isSampled() { // it was the driver that refused
			return nil
		}
		device, _ := from["device"].Int32(d)
		u, ok, err := i.cuts.refused(number("process"), device, number("requested_bytes"), number("pool_allocated_bytes"), number("pool_reserved_bytes"))
		if err != nil {
			i.cuts.logOnce(gc, err)
		}
		if !ok {
			return nil
		}
		return errors.Join(to["pool_pieces_bytes"].PutUint64(d, u.pieces), to["pool_larger_bytes"].PutUint64(d, u.larger), to["pool_apart_bytes"].PutUint64(d, u.apart), to["pool_kept_bytes"].PutUint64(d, u.kept))
	}, subscription)
}
