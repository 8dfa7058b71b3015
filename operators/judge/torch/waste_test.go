// SPDX-License-Identifier: Apache-2.0

package torch

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSampledBlocksAreRecognized(t *testing.T) {
	require.False(t, isAnySampled([]block{{start: 512, end: 1536}, {start: 4096, end: 4608}}))
	require.True(t, isAnySampled([]block{{start: 512, end: 1536}, {start: 4096, end: 4096 + 1_048_577}}))
	require.False(t, isAnySampled(nil))
}

// TestWitnessesThatDisagreeAreReportedOnce by process, but not what was in flight at attach.
func TestWitnessesThatDisagreeAreReportedOnce(t *testing.T) {
	var w witness
	require.Empty(t, w.see(1, 4711, 100000, oddBlocks-1))
	require.Empty(t, w.see(1, 4711, 100000, oddBlocks))
	require.Contains(t, w.see(1, 4711, 900, 100), "of 1000 requests (pytorch:malloc), 100 are not")
	require.Empty(t, w.see(1, 4711, 900, 200))
	require.Contains(t, w.see(2, 4712, 0, oddBlocks), "process 4712")
}
