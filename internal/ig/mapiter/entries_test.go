// SPDX-License-Identifier: Apache-2.0

package mapiter

import (
	"encoding/binary"
	"errors"
	"os"
	"runtime"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/stretchr/testify/require"
)

// TestEntriesAreThoseOfAFullMap: every entry once, whatever its size, and without much garbage.
func TestEntriesAreThoseOfAFullMap(t *testing.T) {
	for _, size := range []uint32{1, 8, 700, 20_000} {
		m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Hash, KeySize: 8, ValueSize: size, MaxEntries: 2000})
		if errors.Is(err, os.ErrPermission) {
			t.Skipf("maps cannot be created: %v", err)
		}
		require.NoError(t, err)
		defer m.Close()
		value := make([]byte, size)
		for n := range uint64(2000) {
			value[0] = byte(n)
			require.NoError(t, m.Put(n, value))
		}
		seen := map[uint64]bool{}
		require.NoError(t, Entries(m, func(key, value []byte) {
			n := binary.NativeEndian.Uint64(key)
			require.False(t, seen[n])
			require.Equal(t, byte(n), value[0])
			require.Len(t, value, int(size))
			seen[n] = true
		}))
		require.Len(t, seen, 2000)

		if size > 700 {
			continue
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		require.NoError(t, Entries(m, func(_, _ []byte) {}))
		runtime.ReadMemStats(&after)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(4*batchBytes), "value of %d bytes", size)
	}
}
