// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/gpu-gadgets/gpu-gadgets/internal/ig"
	"github.com/gpu-gadgets/gpu-gadgets/internal/tracer"
)

// demandsMap is the map of bpf/call/demand.h.
const demandsMap = "demands"

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
	i.cfg.Demands = demands{m}
	return nil
}

func checkDemands(m *ebpf.Map) error {
	if m.KeySize() != 8 || m.ValueSize() != 24 {
		return fmt.Errorf("map %s has keys of %d and values of %d bytes, not 8 and 24", demandsMap, m.KeySize(), m.ValueSize())
	}
	return nil
}

// demands implements tracer.Demands.
type demands struct{ m *ebpf.Map }

func (d demands) Read(pid, fact uint32) (tracer.Demand, error) {
	var v demandValue
	err := d.m.Lookup(demandKey{pid, fact}, &v)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return tracer.Demand{}, nil
	}
	return tracer.Demand{Asked: v.Asked, Learned: v.Learned, Idle: v.Idle}, err
}

func (d demands) Forget(pid, fact uint32) error {
	err := d.m.Delete(demandKey{pid, fact})
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil
	}
	return err
}
