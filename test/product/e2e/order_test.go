// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject"
)

// TestEachRecordedAllocationHasItsFree, also where a process allocates and frees all the time while it is
// attached to: free functions are probed before those that allocate.
func TestEachRecordedAllocationHasItsFree(t *testing.T) {
	t.Parallel()
	w := subject.StartSteps(t)
	w.Load()
	require.Equal(t, "ok churning", w.Request("churn 65536"))
	for range 5 {
		r := start(t, "--pid", fmt.Sprint(w.PID()))
		r.waitAttached(w.PID())
		code, _ := r.interrupt()
		require.Zero(t, code, r.errors())
		lost := r.lost()
		delete(lost, "freed_before_attach")
		require.Empty(t, lost)
	}
	stopChurn(t, w)
}
