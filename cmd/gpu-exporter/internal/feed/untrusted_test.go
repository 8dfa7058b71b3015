// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

// TestImpossibleRows: calls cannot free more than was allocated. Bytes are what processes say.
func TestImpossibleRows(t *testing.T) {
	for name, c := range map[string]struct {
		row   profile.Values
		isLie bool
	}{
		"plain":                     {row: profile.Values{AllocObjects: 10, FreedObjects: 4, ImplicitObjects: 1, InuseObjects: 5}},
		"read while calls are made": {row: profile.Values{AllocObjects: 10, FreedObjects: 11, InuseObjects: 12}},
		"sizes of a forged driver":  {row: profile.Values{AllocObjects: 1, AllocBytes: math.MaxInt64, InuseObjects: 1, InuseBytes: math.MaxInt64}},
		"as many as can be":         {row: profile.Values{AllocObjects: math.MaxInt64, FreedObjects: math.MaxInt64}},
		"more freed":                {row: profile.Values{AllocObjects: 10, FreedObjects: 1 << 30}, isLie: true},
		"more freed together":       {row: profile.Values{AllocObjects: 10, FreedObjects: inFlight, ImplicitObjects: inFlight}, isLie: true},
		"more freed by the end":     {row: profile.Values{AllocObjects: 10, ImplicitObjects: math.MaxInt64, FreedObjects: math.MaxInt64}, isLie: true},
		"more in use":               {row: profile.Values{AllocObjects: 10, InuseObjects: 1 << 40}, isLie: true},
	} {
		err := checkRow(&c.row)
		if !c.isLie {
			require.NoError(t, err, name)
			continue
		}
		untrusted := (*Untrusted)(nil)
		require.ErrorAs(t, err, &untrusted, name)
		require.Equal(t, Impossible, untrusted.Reason)
	}
}

// TestAReplayEnds: a daemon that does not stop to send is no longer replaying after as many packets
// as daemons keep, so that what follows counts as sent.
func TestAReplayEnds(t *testing.T) {
	d := newDaemon(t)
	d.allocated(100)
	f := New(Config{Node: "a", Texts: &Texts{}, Sender: &sender{}})
	c, err := f.Connect(d.info)
	require.NoError(t, err)
	now := time.Now()
	for range replayLimit {
		require.NoError(t, c.Take(d.sent[0], now))
		require.False(t, c.Settled())
	}
	require.NoError(t, c.Take(d.sent[0], now))
	require.True(t, c.Settled())
}
