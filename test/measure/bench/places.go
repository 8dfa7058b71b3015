// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"runtime"
	"slices"

	"github.com/gpu-gadgets/gpu-gadgets/internal/ig/attachpoint"
	"github.com/gpu-gadgets/gpu-gadgets/internal/ig/places"
	"github.com/gpu-gadgets/gpu-gadgets/internal/tracer"
)

// trainingPoints returns the probe sites of the gadgets of a case, one table for each,
// without those that are probed on demand, which are detached when a step is measured.
func trainingPoints(c trainingCase) (tables [][]tracer.Point, err error) {
	for _, command := range c.commands {
		points, err := pointsOf(command[0], slices.Contains(command, "off"))
		if err != nil {
			return nil, err
		}
		if len(points) > 0 {
			tables = append(tables, points)
		}
	}
	return tables, nil
}

// pointsOf are the places that are always probed.
func pointsOf(gadget string, withoutTorch bool) ([]tracer.Point, error) {
	all, err := tableOf(gadget)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(places.Always(all), func(p tracer.Point) bool {
		return withoutTorch && p.Library == "libc10"
	}), nil
}

// tableOf reads the table of a gadget out of its object.
func tableOf(gadget string) ([]attachpoint.Point, error) {
	return places.Read(fmt.Sprintf("build/bpf/%s/%s.bpf.o", gadget, runtime.GOARCH))
}
