// SPDX-License-Identifier: Apache-2.0

package ooms

import "github.com/gpu-gadgets/gpu-gadgets/internal/profile"

// refusal is a function of the driver that refused, and who did.
type refusal struct{ api, by string }

// refusals remembers by pid which refused memory last. It is used by one subscriber at a time.
type refusals map[uint32]refusal

// before gives what refused a process before its pool did, and notes what the driver
// refuses because it has no memory. Events come in their order.
func (r refusals) before(f Failure) refusal {
	pid := f.PID
	if f.API == profile.PoolAPI {
		defer delete(r, pid)
		return r[pid]
	}
	if !profile.IsOutOfMemory(f.Error) {
		return refusal{}
	}
	if len(r) >= maxGroups {
		clear(r)
	}
	r[pid] = refusal{f.API, f.By}
	return refusal{}
}
