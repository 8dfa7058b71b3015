// SPDX-License-Identifier: Apache-2.0

package torch

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhatARefusingPoolDoesNotUse(t *testing.T) {
	// 1,000 MiB reserved, of which 400 are used: in segments of 700 MiB with gaps of 300, of
	// which 120 are large enough; 300 MiB of segments have no block.
	f := fit{held: 700 * mib, used: 400 * mib, usable: 120 * mib}
	u, ok := f.unused(400*mib, 1000*mib, 300*mib)
	require.True(t, ok)
	require.Equal(t, unused{pieces: 180 * mib, apart: 120 * mib, kept: 300 * mib}, u)

	// Beside them others of the driver, which are not PyTorch's.
	u, _ = f.unused(400*mib, 1000*mib, 5000*mib)
	require.Equal(t, unused{pieces: 180 * mib, apart: 120 * mib, kept: 300 * mib}, u)
	// A segment from before attach, with little in it, is not one without a block.
	u, _ = f.unused(400*mib, 1000*mib, 280*mib)
	require.Equal(t, unused{pieces: 200 * mib, apart: 120 * mib, kept: 280 * mib}, u)
	// Nothing is used: graphs keep all.
	u, ok = fit{}.unused(1*mib, 578*mib, 576*mib)
	require.True(t, ok)
	require.Equal(t, unused{pieces: 1 * mib, kept: 576 * mib}, u)

	// A small tensor may not use gaps of large segments, however large they are.
	u, ok = fit{held: 1000 * mib, used: 400 * mib, larger: 590 * mib}.unused(400*mib, 1000*mib, 0)
	require.True(t, ok)
	require.Equal(t, unused{pieces: 10 * mib, larger: 590 * mib}, u)

	for why, f := range map[string]fit{
		"blocks from before attach":   {held: 700 * mib, used: 389 * mib},
		"some were given back since":  {held: 700 * mib, used: 300 * mib},
		"some were allocated since":   {held: 700 * mib, used: 401 * mib},
		"segments from before attach": {held: 600 * mib, used: 400 * mib, outside: 100 * mib},
		"nothing is known of it":      {},
	} {
		_, ok := f.unused(400*mib, 1000*mib, 300*mib)
		require.False(t, ok, why)
	}
	_, ok = fit{used: 400 * mib}.unused(400*mib, 300*mib, 0)
	require.False(t, ok, "the two totals are of different moments")
}
