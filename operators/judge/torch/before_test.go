// SPDX-License-Identifier: Apache-2.0

package torch

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhatWasThereAtAttachIsKnownByTwoReadings(t *testing.T) {
	exact := beforeAttach{
		errorOf: func(uint64) uint64 { return 0 }, attached: map[poolOf]*attached{},
	}
	key := poolOf{process: 7, device: 1}
	see := func(t totalsOf) []oldRow {
		exact.seePools(map[poolOf]readPool{key: {totalsOf: t}})
		return exact.rows(nil)
	}
	require.Empty(t, see(totalsOf{allocated: 110, out: 10}), "one reading")
	// A report of 5 bytes whose second half is not there yet.
	require.Empty(t, see(totalsOf{allocated: 115, out: 10}))
	require.Empty(t, see(totalsOf{allocated: 115, out: 15}))
	require.Equal(t, []oldRow{{poolOf: key, bytes: 100, first: 100}}, see(totalsOf{allocated: 115, out: 15}))
	require.EqualValues(t, 100, see(totalsOf{allocated: 120, out: 15})[0].bytes, "it is a constant")
	require.EqualValues(t, 70, see(totalsOf{allocated: 85, out: 15, back: 30, before: 30})[0].bytes)
	require.EqualValues(t, 70, see(totalsOf{allocated: 80, out: 15, back: 35, before: 30})[0].bytes, "one of ours was taken back")
	require.Empty(t, see(totalsOf{allocated: 10, out: 15, back: 105, before: 100}))

	exact.seePools(nil)
	require.Empty(t, exact.rows(nil))
	require.Empty(t, exact.attached, "the process has ended")
}

func TestSampledItIsWhatTheRowsDoNotExplain(t *testing.T) {
	b := beforeAttach{errorOf: func(n uint64) uint64 { return n / 10 }}
	p := readPool{totalsOf: totalsOf{allocated: 1000}}
	require.EqualValues(t, 300, b.left(p, 500, 700, true))
	require.EqualValues(t, 200, b.left(p, 200, 700, true), "never more than there was")
	require.Zero(t, b.left(p, 500, 920, true), "the error of the rows is as large")
	require.Zero(t, b.left(p, 500, 1100, true))
	require.Zero(t, b.left(p, 500, 0, true)-500)
}
