// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"

	"github.com/gpu-gadgets/gpu-gadgets/internal/ig"
	"github.com/gpu-gadgets/gpu-gadgets/internal/tracer"
)

// demandsMap and wakeupsMap are maps of bpf/call/demand.h.
const demandsMap, wakeupsMap = "demands", "demand_wakeups"

// demandKey mirrors struct demand_key of bpf/call/demand.h, demandValue struct demand.
type (
	demandKey   struct{ TGID, Fact uint32 }
	demandValue struct{ Asked, Learned, Idle uint64 }
)

// takeDemands lets the tracer read which facts are missing. Gadgets without points
// that are probed on demand have no such map.
func (i *instance) takeDemands(gc ig.Context) error {
	m, err := ig.Map(gc, demandsMap)
	if errors.Is(err, ig.ErrAbsent) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := checkDemands(m); err != nil {
		return err
	}
	wakeups, err := ig.Map(gc, wakeupsMap)
	if err != nil {
		return err
	}
	i.cfg.Demands = &demands{m: m, wakeups: wakeups}
	return nil
}

func checkDemands(m *ebpf.Map) error {
	if m.KeySize() != 8 || m.ValueSize() != 24 {
		return fmt.Errorf("map %s has keys of %d and values of %d bytes, not 8 and 24", demandsMap, m.KeySize(), m.ValueSize())
	}
	return nil
}

// demands implements tracer.Demands.
type demands struct {
	m, wakeups *ebpf.Map
	reader     *ringbuf.Reader // of wakeups, from the first Wait on
	record     ringbuf.Record
}

func (d *demands) Read(pid, fact uint32) (tracer.Demand, error) {
	var v demandValue
	err := d.m.Lookup(demandKey{pid, fact}, &v)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return tracer.Demand{}, nil
	}
	return tracer.Demand{Asked: v.Asked, Learned: v.Learned, Idle: v.Idle}, err
}

func (d *demands) Forget(pid, fact uint32) error {
	err := d.m.Delete(demandKey{pid, fact})
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil
	}
	return err
}

func (d *demands) Wait(ctx context.Context) error {
	if d.reader == nil {
		r, err := ringbuf.NewReader(d.wakeups)
		if err != nil {
			return fmt.Errorf("read which facts are missing: %w", err)
		}
		d.reader = r
		context.AfterFunc(ctx, func() { r.Close() })
	}
	return d.reader.ReadInto(&d.record)
}
