// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/examples/simcuda/journal"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject"
)

// requireExact compares the sums over a process's rows with the driver's.
func requireExact(t testing.TB, w *subject.Steps, rows []row) {
	t.Helper()
	var got journal.Sums
	for _, r := range rows {
		got.AllocBytes += r.AllocBytes
		got.AllocObjects += r.AllocObjects
		got.FreedBytes += r.FreedBytes
		got.FreedObjects += r.FreedObjects
		got.ImplicitBytes += r.ImplicitBytes
		got.ImplicitObjects += r.ImplicitObjects
	}
	truth := w.Truth()
	want := journal.Sums{
		AllocBytes: truth.AllocBytes, AllocObjects: truth.AllocObjects,
		FreedBytes: truth.FreedBytes, FreedObjects: truth.FreedObjects,
		ImplicitBytes: truth.ImplicitBytes, ImplicitObjects: truth.ImplicitObjects,
	}
	if w.HasEnded() {
		want.ImplicitBytes += truth.InUseBytes()
		want.ImplicitObjects += truth.InUseObjects()
	}
	require.Equal(t, want, got)
}

// counts is how many allocations the rows hold, for waiting.
func allocs(n uint64) func([]row) bool {
	return func(rows []row) bool {
		sum := uint64(0)
		for _, r := range rows {
			sum += r.AllocObjects
		}
		return sum >= n
	}
}
