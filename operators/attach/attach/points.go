// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"github.com/gpu-gadgets/gpu-gadgets/internal/ig/attachpoint"
	"github.com/gpu-gadgets/gpu-gadgets/internal/tracer"
)

// points are those of a table as the tracer takes them, which attaches in their order.
func points(table []attachpoint.Point) (all []tracer.Point) {
	for _, last := range []bool{false, true} {
		for _, p := range table {
			if p.Last != last {
				continue
			}
			all = append(all, tracer.Point{
				Library: p.Library, Symbol: p.Symbol, Cookie: p.Cookie, Exit: p.Exit, EntrySleeps: p.EntrySleeps, Fact: p.Fact,
				ThreadLocals: p.ThreadLocals, Beside: p.Beside,
			})
		}
	}
	return all
}
