// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"maps"
	"math"
	"slices"
)

// plan is which functions are followed a part of the time only.
type plan struct {
	slots uint32 // one of so many is a window; 1: all calls are followed
	apis  []uint32
}

const (
	// mostSlots bounds how long it takes to have seen anything: a period is 1.3 s.
	mostSlots = 250
	// headroom is the part of the budget that is aimed at.
	headroom = 0.8
	// hysteresis: all calls are followed again when that would take less than this part
	// of the budget, at so many looks in a row.
	hysteresis = 0.6
	calmLooks  = 5
	// settled: the number of slots stays within these of the one that is aimed at.
	settledLow, settledHigh = 0.8, 1.3
	// learning is the weight of the newest look.
	learning = 0.5
	// mostScale bounds how much more than their charge probes are taken to cost, and mostScales
	// is how many measurements that is an average of.
	mostScale, mostScales = 10, 20
)

// planner chooses the plan that keeps a budget.
type planner struct {
	limit  float64         // share of a thread's CPU time
	can    map[uint32]bool // functions that can be followed a part of the time
	now    plan
	full   map[uint32]float64 // what each function would take if all calls were followed
	calm   int
	scale  float64 // what probes take against what they are charged with
	scales int     // how often that was measured
	cannot bool    // the limit is not kept with most slots either
}

// see reads the cost of probes under the present plan, and makes the next one.
func (p *planner) see(s seen) plan {
	p.learn(s)
	var all float64
	for _, share := range p.full {
		all += share * p.scale
	}
	if p.now.slots <= 1 {
		if all > p.limit {
			p.choose()
		}
		return p.now
	}
	if all > hysteresis*p.limit {
		p.calm = 0
		p.choose()
	} else if p.calm++; p.calm >= calmLooks {
		p.calm, p.now = 0, plan{slots: 1}
	}
	return p.now
}

// taken is the share of a thread that the probes take under the present plan.
func (p *planner) taken() (all float64) {
	for api, share := range p.full {
		if slices.Contains(p.now.apis, api) {
			share /= float64(p.now.slots)
		}
		all += share * p.scale
	}
	return all
}

// rescale takes a measured scale into account: the average of the first ones, and then as
// much of each.
func (p *planner) rescale(measured float64) {
	p.scales = min(p.scales+1, mostScales)
	p.scale += (min(max(measured, 1), mostScale) - p.scale) / float64(p.scales)
}

// inWindow is the charge for the functions that are followed in windows, as a
// share of a thread.
func (p *planner) inWindow() (share float64) {
	for _, api := range p.now.apis {
		share += p.full[api]
	}
	return share
}

func (p *planner) learn(s seen) {
	weight := learning
	if p.full == nil {
		p.full, weight = map[uint32]float64{}, 1
	}
	if p.now.slots <= 1 {
		weight = 1 // a look is exact
	}
	for api := range p.full {
		p.full[api] *= 1 - weight
	}
	for api, ns := range s.ns {
		share := s.worst.Share * ns / s.total
		if slices.Contains(p.now.apis, api) {
			share *= float64(p.now.slots)
		}
		p.full[api] += weight * share
	}
}

// choose takes the functions that cost most, until the others take a third of the budget,
// and as many slots as bring them into the rest.
func (p *planner) choose() {
	limit := headroom * p.limit
	var rest, part float64
	for api, share := range p.full {
		if share *= p.scale; api == weighings {
			share = min(share, weighPart*limit) // there are more of them at first
		}
		rest += share
	}
	var apis []uint32
	by := slices.SortedFunc(maps.Keys(p.full), func(a, b uint32) int {
		switch {
		case p.full[a] > p.full[b]:
			return -1
		case p.full[a] < p.full[b]:
			return 1
		}
		return int(a) - int(b)
	})
	for _, api := range by {
		// One that was chosen stays as long as it takes anything to speak of.
		share := p.full[api] * p.scale
		stays := slices.Contains(p.now.apis, api) && share > limit/200
		if !p.can[api] || (rest <= limit/3 && !stays) {
			continue
		}
		apis = append(apis, api)
		rest -= share
		part += share
	}
	if len(apis) == 0 {
		p.cannot = true
		return
	}
	slices.Sort(apis)
	slots := float64(mostSlots)
	if left := limit - rest; left > 0 {
		slots = math.Ceil(part / left)
	}
	p.cannot = slots > mostSlots || limit <= rest
	slots = min(max(slots, 2), mostSlots)
	if have := float64(p.now.slots); p.now.slots > 1 && slots >= settledLow*have && slots <= settledHigh*have && slots != mostSlots {
		slots = have
	}
	p.now = plan{uint32(slots), apis}
}
