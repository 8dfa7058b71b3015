// SPDX-License-Identifier: Apache-2.0

package pystack

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/stretchr/testify/require"
)

func TestAProfileEndsWithTheLastOfItsProcesses(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("maps need root; the uid is not 0")
	}
	selected, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Hash, KeySize: 4, ValueSize: 4, MaxEntries: 8})
	require.NoError(t, err)
	defer selected.Close()
	procfs := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(procfs, "7"), 0o755))
	isLeft := func() bool {
		is, err := isAnyLeft(selected, procfs)
		require.NoError(t, err)
		return is
	}
	for _, pid := range []uint32{7, 8} { // 8 was a child, and was selected after its exit
		require.NoError(t, selected.Put(pid, uint32(1)))
	}
	require.True(t, isLeft())
	require.NoError(t, os.Remove(filepath.Join(procfs, "7")))
	require.False(t, isLeft())
	require.NoError(t, selected.Delete(uint32(7)))
	require.NoError(t, selected.Delete(uint32(8)))
	require.False(t, isLeft())
}
