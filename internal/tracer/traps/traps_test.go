// SPDX-License-Identifier: Apache-2.0

package traps

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/bpftest"
)

func TestCallCallsWhatIsProbed(t *testing.T) {
	probed()
	call(1000)
	require.NotZero(t, address())
}

// TestTrapsTakeTime: neither none nor as long as an instruction that has to be run alone
// takes on a virtual machine. Nothing of ours stays behind.
func TestTrapsTakeTime(t *testing.T) {
	bpftest.RequireRoot(t)
	before := fastest()
	begin := time.Now()
	cost, err := Measure()
	require.NoError(t, err)
	t.Logf("entry %v, return %v; measured in %v", cost.Entry, cost.Return, time.Since(begin))
	require.Greater(t, cost.Entry, 50*time.Nanosecond)
	require.Less(t, cost.Entry, 100*time.Microsecond)
	require.Greater(t, cost.Return, 50*time.Nanosecond)
	require.Less(t, cost.Return, 100*time.Microsecond)
	require.Less(t, fastest(), before+cost.Entry)
}
