// SPDX-License-Identifier: Apache-2.0

package nccl

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
)

// TestAProcessIsReadOncePerPass, however many communicators it has: with 10,000 of them
// its maps took longer to read than the time between two tables.
func TestAProcessIsReadOncePerPass(t *testing.T) {
	procfs := t.TempDir()
	process := filepath.Join(procfs, "4711")
	require.NoError(t, os.Mkdir(process, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(process, "maps"), nil, 0o644))
	i := &identities{
		inspector: inspector{procfs: procfs, maps: procmaps.NewCache(procmaps.Config{ProcFS: procfs}), files: map[fileKey]inspected{}},
		known:     map[communicatorKey]*answer{}, ours: map[uint64]uint64{}, opened: map[uint32]*opened{},
	}
	now := time.Now()
	identify := func(handle uint64, pass int) error {
		_, err := i.identify(request{communicatorKey: communicatorKey{process: 1, handle: handle}, pid: 4711}, now, pass)
		return err
	}
	require.ErrorIs(t, identify(1, 1), errNoLibrary)
	require.NoError(t, os.RemoveAll(process))
	for handle := uint64(2); handle < 100; handle++ {
		require.ErrorIs(t, identify(handle, 1), errNoLibrary, "it was read again")
	}
	i.forget(1)
	require.ErrorIs(t, identify(200, 2), procmaps.ErrGone, "the next pass reads again")
}
