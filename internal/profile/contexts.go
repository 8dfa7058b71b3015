// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"cmp"
	"slices"
	"strings"
)

// KindContext is the kind of CUDA contexts. Their rows have objects and no bytes: the driver
// does not report the size of a context to its process.
const KindContext = "context"

// Contexts finds the CUDA contexts of processes, and on which devices a process has one and
// does nothing else. The zero value is ready. It is not safe for concurrent use.
type Contexts struct {
	made map[contextKey]*Context
	used map[contextKey]bool // unknown devices, too
}

type contextKey struct {
	process uint64
	device  int32
}

// Context is a process's context on one device.
type Context struct {
	Process Process
	Device  int32
	Objects int64
	// PinnedBytes is memory of the host that was pinned while the context was current.
	PinnedBytes int64
}

// Memory adds a row of memory, or the sum of several.
func (c *Contexts) Memory(p Process, kind string, device int32, v Values) {
	at := contextKey{p.ID, device}
	switch kind {
	case KindContext:
		c.of(p, device).Objects += v.InuseObjects
	case KindHost:
		c.of(p, device).PinnedBytes += v.InuseBytes
	default:
		c.use(at, v.AllocObjects)
	}
}

// Calls adds calls of the driver. What only asks or loads is no use of a device: the driver
// loads modules into each context.
func (c *Contexts) Calls(p Process, operation string, device int32, calls int64) {
	switch operation {
	case "launch", "graph", "copy", "prefetch", "set":
		c.use(contextKey{p.ID, device}, calls)
	}
}

// IsWait reports whether the time of a call counts as waited for the GPU: that of `wait`, and of copies that may return when
// they, and the work before them on their stream, are done. Asynchronous copies to the host are among them: to pageable memory
// they are synchronous (NVIDIA, "API synchronization behavior"), and to pinned memory they take microseconds. Copies from the
// host may return when the data is staged, unless IsCopied, and those whose direction only the driver knows may be between devices.
func IsWait(operation, direction, api string) bool {
	return operation == "wait" || operation == "copy" && (direction == "DtoH" || IsCopied(direction, api))
}

// IsCopied reports whether a copy, and the work before it on its stream, is known to be done when the call returns. Both
// vendors document that of synchronous copies to the host, and AMD of hipMemcpyWithStream, "akin to hipMemcpyAsync +
// hipStreamSynchronize", unless both ends are on devices. Of an unknown call ("") it is not known.
func IsCopied(direction, api string) bool {
	if api == "" || strings.Contains(api, "Async") {
		return false
	}
	return direction == "DtoH" || api == "hipMemcpyWithStream" && (direction == "HtoD" || direction == "HtoH")
}

func (c *Contexts) use(at contextKey, times int64) {
	if c.used == nil {
		c.used = map[contextKey]bool{}
	}
	c.used[at] = c.used[at] || times > 0
}

func (c *Contexts) of(p Process, device int32) *Context {
	if c.made == nil {
		c.made = map[contextKey]*Context{}
	}
	at := contextKey{p.ID, device}
	if c.made[at] == nil {
		c.made[at] = &Context{Process: p, Device: device}
	}
	return c.made[at]
}

// All are the devices on which contexts were made and have not ended, by process and device.
func (c *Contexts) All() (all []Context) {
	for _, one := range c.made {
		if one.Objects > 0 {
			all = append(all, *one)
		}
	}
	slices.SortFunc(all, func(a, b Context) int {
		return cmp.Or(cmp.Compare(a.Process.PID, b.Process.PID), cmp.Compare(a.Process.ID, b.Process.ID), cmp.Compare(a.Device, b.Device))
	})
	return all
}

// Idle are those of All on whose device the process did nothing else, although it did
// something on another one. Of a process that used a device that is not known there are none:
// it may be that one.
func (c *Contexts) Idle() (idle []Context) {
	works := map[uint64]bool{}
	for at, used := range c.used {
		works[at.process] = works[at.process] || used
	}
	for _, one := range c.All() {
		id := one.Process.ID
		if works[id] && !c.used[contextKey{id, one.Device}] && !c.used[contextKey{id, UnknownDevice}] {
			idle = append(idle, one)
		}
	}
	return idle
}
