// SPDX-License-Identifier: Apache-2.0

// Package places reads the functions that a gadget probes from its compiled object, for
// programs that attach other probes there.
package places

import (
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/gpu-gadgets/gpu-gadgets/internal/ig/attachpoint"
	"github.com/gpu-gadgets/gpu-gadgets/internal/tracer"
)

// Read returns the table of an object, as ig-gpu reads it. A gadget that attaches to no
// functions has none.
func Read(object string) ([]attachpoint.Point, error) {
	spec, err := ebpf.LoadCollectionSpec(object)
	if err != nil {
		return nil, fmt.Errorf("run make build first: %w", err)
	}
	table := spec.Maps[".rodata.attach"]
	if table == nil {
		return nil, nil
	}
	points, err := attachpoint.Parse(table)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", object, err)
	}
	return points, nil
}

// Always returns the points that are probed as long as the gadget runs, without those
// probed on demand and USDTs.
func Always(all []attachpoint.Point) (points []tracer.Point) {
	for _, p := range all {
		if p.OnDemand() || p.USDT {
			continue
		}
		points = append(points, tracer.Point{
			Library: p.Library, Symbol: p.Symbol, Cookie: p.Cookie, Exit: p.Exit, EntrySleeps: p.EntrySleeps, Beside: p.Beside,
		})
	}
	return points
}
