// SPDX-License-Identifier: Apache-2.0

package ooms

import (
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

// retries is for how long a refusal of the driver may belong to one of PyTorch's pool. Before that refuses, it waits for what
// the GPU does with blocks that were freed, returns its cache, and asks the driver again (malloc of
// c10/cuda/CUDACachingAllocator.cpp): that takes as long as the kernels in flight, mostly milliseconds.
const retries = 10 * time.Second

// Leads reports whether the pool's refusal is the outcome of this one by the driver, which came before it.
func (f *Failure) Leads(pool *Failure) bool {
	return f.API != profile.PoolAPI && pool.API == profile.PoolAPI && f.LacksMemory() && !f.IsHost && f.PID == pool.PID &&
		(f.Device == pool.Device || f.Device < 0 || pool.Device < 0) && f.At <= pool.At && pool.At-f.At <= uint64(retries)
}

// place is a GPU of a process.
type place struct {
	pid    uint32
	device int32
}

// refusals remembers by GPU of a process the driver's last refusal. It is used by one subscriber at a time.
type refusals map[place]Failure

// before gives what the driver refused on the way to a refusal of PyTorch's pool, and notes what the driver
// refuses because it has no memory; nil: nothing. Events come in their order.
func (r refusals) before(f *Failure) *Failure {
	if f.API == profile.PoolAPI {
		return r.take(f)
	}
	if !f.LacksMemory() || f.IsHost {
		return nil
	}
	if len(r) >= maxGroups {
		clear(r)
	}
	r[place{f.PID, f.Device}] = *f
	return nil
}

// take finds the last refusal that leads to that of the pool, and forgets all that do: each is of one request. The device of
// the driver's may be unknown.
func (r refusals) take(pool *Failure) (last *Failure) {
	for _, device := range []int32{pool.Device, profile.UnknownDevice} {
		at := place{pool.PID, device}
		f, ok := r[at]
		delete(r, at)
		if ok && f.Leads(pool) && (last == nil || f.At > last.At) {
			last = &f
		}
	}
	return last
}
