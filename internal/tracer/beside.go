// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"slices"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
)

// besides are the libraries that are followed only beside another one: Point.Beside.
func besides(points []Point) map[string]bool {
	all := map[string]bool{}
	for _, p := range points {
		if p.Beside {
			all[p.Library] = true
		}
	}
	return all
}

// withoutLone returns the mappings to follow of a process: none if all of them are of
// libraries that are followed only beside another one.
func (t *Tracer) withoutLone(found []procmaps.Mapping) []procmaps.Mapping {
	if !slices.ContainsFunc(found, func(m procmaps.Mapping) bool { return !t.beside[t.matches(m.Path)] }) {
		return nil
	}
	return found
}
