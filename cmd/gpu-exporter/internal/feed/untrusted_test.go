// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
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

// TestAReplayOfSomethingElseEnds: packets that were not announced count as well, and so does the time.
func TestAReplayOfSomethingElseEnds(t *testing.T) {
	d := newDaemon(t)
	d.allocated(100)
	other := &api.GadgetEvent{Type: api.EventTypeGadgetPayload, DataSourceID: 4711}
	now := time.Now()
	for name, send := range map[string]func(*Connection){
		"packets": func(c *Connection) {
			for range replayLimit {
				require.NoError(t, c.Take(other, now))
				require.False(t, c.Settled())
			}
			require.NoError(t, c.Take(other, now))
		},
		"seconds": func(c *Connection) { require.NoError(t, c.Take(other, now.Add(settleLimit+time.Minute))) },
	} {
		c, err := New(Config{Node: "a", Texts: &Texts{}, Sender: &sender{}}).Connect(d.info)
		require.NoError(t, err)
		send(c)
		require.True(t, c.Settled(), name)
	}
}

// TestRefusedAllocationsThatWaitAreBounded, in bytes, too.
func TestRefusedAllocationsThatWaitAreBounded(t *testing.T) {
	o := &ooms{}
	const size = 1 << 20
	for n := range 200 {
		require.NoError(t, o.decode(append(make([]byte, size-1), byte(n)), false))
		require.LessOrEqual(t, o.bytes, maxWaiting)
	}
	require.Len(t, o.waiting, maxWaiting/size)
	require.EqualValues(t, 199, o.waiting[len(o.waiting)-1][size-1], "the newest stay")
	require.Error(t, o.decode(make([]byte, maxOOM+1), false))

	o = &ooms{}
	for range 2 * ring {
		require.NoError(t, o.decode(make([]byte, maxWaiting/ring), false))
	}
	require.Len(t, o.waiting, ring, "as many as a daemon keeps")
}

// TestStacksAreBounded in bytes: a daemon can send long ones.
func TestStacksAreBounded(t *testing.T) {
	texts, f := &Texts{}, New(Config{})
	long := strings.Repeat("a; ", maxText/100)
	require.Less(t, texts.parse(long).bytes, maxText)
	for n := range maxTextBytes/texts.parse(long).bytes + 10 {
		p := texts.parse(long + strconv.Itoa(n))
		require.Len(t, p.stack, maxText/100+1)
		f.remember(uint64(n), p)
		f.remember(uint64(n), p) // its values have changed
		require.LessOrEqual(t, texts.bytes, maxTextBytes)
		require.LessOrEqual(t, f.bytes, maxTextBytes)
		sum := 0
		for _, kept := range f.stacks {
			sum += kept.bytes
		}
		require.Equal(t, sum, f.bytes)
	}
	texts, f = &Texts{}, New(Config{})
	for n := range 3 {
		p := texts.parse(strings.Repeat("a; ", maxText/3) + strconv.Itoa(n))
		require.NotEmpty(t, p.stack)
		f.remember(uint64(n), p)
	}
	require.Empty(t, texts.stacks, "too long")
	require.Empty(t, f.stacks)
}
