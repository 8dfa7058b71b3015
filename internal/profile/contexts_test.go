// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAContextIsIdleWhereAProcessDoesNothingElse(t *testing.T) {
	p, other := Process{ID: 1, PID: 10}, Process{ID: 2, PID: 20}
	made := func() *Contexts {
		c := &Contexts{}
		c.Memory(p, KindContext, 0, Values{InuseObjects: 1, AllocObjects: 1})
		c.Memory(p, KindContext, 1, Values{InuseObjects: 1, AllocObjects: 2})
		c.Memory(p, KindContext, 2, Values{AllocObjects: 1, FreedObjects: 1})
		c.Memory(p, "host", 0, Values{InuseBytes: 7, AllocObjects: 1})
		c.Memory(other, "device", 0, Values{AllocObjects: 1})
		return c
	}
	c := made()
	require.Len(t, c.All(), 2, "the third one has ended")
	require.Empty(t, c.Idle(), "a process that has done nothing yet is about to start")

	c.Memory(p, "device", 1, Values{AllocObjects: 1, FreedObjects: 1})
	c.Calls(p, "load", 0, 3)
	require.Equal(t, []Context{{Process: p, Device: 0, Objects: 1, PinnedBytes: 7}}, c.Idle())

	for name, use := range map[string]func(*Contexts){
		"launches":              func(c *Contexts) { c.Calls(p, "launch", 0, 1) },
		"copies":                func(c *Contexts) { c.Calls(p, "copy", 0, 1) },
		"tensors":               func(c *Contexts) { c.Memory(p, KindTensor, 0, Values{AllocObjects: 1}) },
		"on a device not known": func(c *Contexts) { c.Memory(p, "device", UnknownDevice, Values{AllocObjects: 1}) },
	} {
		c := made()
		c.Memory(p, "device", 1, Values{AllocObjects: 1})
		use(c)
		require.Empty(t, c.Idle(), name)
	}
}

// TestCopiesToTheHostAreWaits: asynchronous ones, too, as of numpy's arrays in CuPy's get(). Their stream need not be done.
func TestCopiesToTheHostAreWaits(t *testing.T) {
	for _, c := range []struct {
		operation, direction, api string
		isWait, isCopied          bool
	}{
		{"wait", "", "cuStreamSynchronize", true, false},
		{"copy", "DtoH", "cuMemcpyDtoH_v2_ptds", true, true},
		{"copy", "DtoH", "hipMemcpy", true, true},
		{"copy", "DtoH", "cuMemcpyDtoHAsync_v2", true, false},
		{"copy", "DtoH", "hipMemcpyAsync", true, false},
		{"copy", "DtoH", "", true, false}, // of older gadgets
		{"copy", "HtoD", "cuMemcpyHtoD_v2", false, false},
		{"copy", "any", "cuMemcpy", false, false},
		{"copy", "HtoD", "hipMemcpyWithStream", true, true},
		{"copy", "HtoH", "hipMemcpyWithStream", true, true},
		{"copy", "DtoD", "hipMemcpyWithStream", false, false},
		{"captured", "DtoH", "cuMemcpyDtoHAsync_v2", false, false},
		{"query", "", "cuStreamQuery", false, false},
	} {
		require.Equal(t, c.isWait, IsWait(c.operation, c.direction, c.api), c.api)
		if c.operation == "copy" {
			require.Equal(t, c.isCopied, IsCopied(c.direction, c.api), c.api)
		}
	}
}
