// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/cilium/ebpf/btf"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/elf/module"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/bpftest"
)

func TestBlockIsThatOfC(t *testing.T) {
	spec := bpftest.Spec(t, "../../../gadgets/nccl_trace/program.bpf.c", "-mcpu=v3")
	m := spec.Maps[blocksMap]
	require.NotNil(t, m)
	c, ok := btf.UnderlyingType(m.Value).(*btf.Struct)
	require.True(t, ok)
	mirror := reflect.TypeFor[block]()
	require.EqualValues(t, mirror.Size(), c.Size)
	require.Len(t, c.Members, mirror.NumField())
	for i, member := range c.Members {
		require.EqualValues(t, mirror.Field(i).Offset, member.Offset.Bytes(), member.Name)
		require.Equal(t, member.Name, strings.ToLower(mirror.Field(i).Name))
	}
}

// TestEqualBlocksAreOne, and files cannot make us write without end.
func TestEqualBlocksAreOne(t *testing.T) {
	written := map[uint32]block{}
	refuse := false
	b := newBlocks(3, func(n uint32, v block) error {
		if refuse {
			return errors.New("refused")
		}
		written[n] = v
		return nil
	})
	found := module.ThreadLocalBlock{Variable: module.ThreadLocal{Access: module.AccessIndex, Address: 4096}, Size: 64}
	number := func(function uint64) uint32 {
		n, err := b.number(function, found, 1)
		require.NoError(t, err)
		return n
	}
	require.EqualValues(t, 1, number(16))
	refuse = true
	_, err := b.number(32, found, 1)
	require.ErrorContains(t, err, "refused")
	refuse = false
	require.EqualValues(t, 2, number(32), "what could not be written is not known")
	require.EqualValues(t, 1, number(16))
	require.Equal(t, map[uint32]block{1: {16, 4096, 0, 3, 64}, 2: {32, 4096, 0, 3, 64}}, written)
	_, err = b.number(48, found, 1)
	require.ErrorIs(t, err, errBlocks)
}

// A tenant with many libraries leaves numbers to others.
func TestBlocksAreShared(t *testing.T) {
	b := newBlocks(64, func(uint32, block) error { return nil })
	made := func(tenant procmaps.Tenant, from uint64) (n int) {
		for function := from; function < from+100; function++ {
			if _, err := b.number(function, module.ThreadLocalBlock{}, tenant); err == nil {
				n++
			}
		}
		return n
	}
	require.Equal(t, 47, made(1, 0))
	require.Equal(t, 16, made(2, 1000))
}
