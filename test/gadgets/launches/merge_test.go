// SPDX-License-Identifier: Apache-2.0

package launches

import "math"

// merged adds up the rows whose stacks differ in native frames only: with unwind information those of
// the first calls are shorter.
func (g *gadget) merged(rows []call) []call {
	type same struct {
		stack                      string
		process, function          uint64
		err, status, device        int32
		operation, api, directions string
	}
	index := map[same]int{}
	var all []call
	for _, r := range rows {
		k := same{g.python(r.StackID), r.Process, r.Function, r.Error, r.Status, r.Device,
			text(r.Operation[:]), text(r.API[:]), text(r.Direction[:])}
		i, ok := index[k]
		if !ok {
			index[k] = len(all)
			all = append(all, r)
			continue
		}
		m := &all[i]
		m.Calls += r.Calls
		m.Sampled += r.Sampled
		m.Bytes += r.Bytes
		m.HostNS += r.HostNS
		m.DeviceNS += r.DeviceNS
		m.Blocks += r.Blocks
		m.Threads += r.Threads
		m.Nodes += r.Nodes
		for _, e := range [][2]*uint64{{&m.CallsError, &r.CallsError}, {&m.BytesError, &r.BytesError}, {&m.HostNSError, &r.HostNSError}} {
			*e[0] = uint64(math.Round(math.Hypot(float64(*e[0]), float64(*e[1]))))
		}
		m.Varies |= r.Varies
		for bit, differs := range []bool{m.Grid != r.Grid, m.Block != r.Block, m.Shared != r.Shared} {
			if differs {
				m.Varies |= 1 << bit
			}
		}
		for n, count := range r.Time {
			m.Time[n] += count
		}
	}
	return all
}
