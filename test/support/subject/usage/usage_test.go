// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"os"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/stretchr/testify/require"
)

func TestProcessorTimeGrows(t *testing.T) {
	before, _, err := CPU(os.Getpid())
	require.NoError(t, err)
	for began := time.Now(); time.Since(began) < 10*time.Second; {
		now, _, err := CPU(os.Getpid())
		require.NoError(t, err)
		if now > before {
			return
		}
	}
	require.Fail(t, "a loop takes no time")
}

func TestMemoryIsThatOfTheProcess(t *testing.T) {
	taken := make([]byte, 64<<20)
	for i := range taken {
		taken[i] = 1
	}
	most, err := Memory(os.Getpid(), "VmHWM")
	require.NoError(t, err)
	require.GreaterOrEqual(t, most, int64(len(taken)))
	_, err = Memory(os.Getpid(), "VmNothing")
	require.Error(t, err)
	_, err = Memory(-1, "VmHWM")
	require.Error(t, err)
}

func TestMapsAreCountedOnce(t *testing.T) {
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4096, MaxEntries: 16})
	if err != nil {
		t.Skipf("no eBPF: %v", err)
	}
	defer m.Close()
	again, err := m.Clone()
	require.NoError(t, err)
	defer again.Close()
	n, size, err := Maps(os.Getpid())
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.GreaterOrEqual(t, size, int64(16*4096))
	programs, err := Programs(os.Getpid())
	require.NoError(t, err)
	require.Empty(t, programs)
}
