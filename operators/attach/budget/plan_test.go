// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	launch, copies, name = 1, 2, 3 // functions; what teaches a name is always followed
)

// machine has the cost of a plan: a share of a thread's CPU time for each function if
// all of its calls were followed.
type machine map[uint32]float64

func (m machine) under(p plan) seen {
	s := seen{seconds: 1, hits: map[uint32]float64{}, ns: map[uint32]float64{}}
	for api, share := range m {
		for _, in := range p.apis {
			if in == api {
				share /= float64(p.slots)
			}
		}
		s.worst.Share += share
		s.ns[api] = 1e9 * share
		s.total += 1e9 * share
	}
	return s
}

func newPlanner(limit float64) *planner {
	return &planner{limit: limit, can: map[uint32]bool{launch: true, copies: true}, now: plan{slots: 1}, scale: 1}
}

func TestCheapCallsAreAllFollowed(t *testing.T) {
	p := newPlanner(0.01)
	require.Equal(t, plan{slots: 1}, p.see(machine{launch: 0.004, copies: 0.004}.under(p.now)))
}

func TestThePlanKeepsTheBudgetAndOnlyWhatIsFrequentIsLeftOut(t *testing.T) {
	p := newPlanner(0.01)
	m := machine{launch: 0.4, copies: 0.001, name: 0.0005}
	for range 10 {
		p.see(m.under(p.now))
	}
	require.Equal(t, []uint32{launch}, p.now.apis)
	require.Less(t, m.under(p.now).worst.Share, 0.01)
	require.Greater(t, m.under(p.now).worst.Share, 0.005)
	require.False(t, p.cannot)
}

func TestWhatCannotBeLeftOutIsSaid(t *testing.T) {
	p := newPlanner(0.01)
	for range 3 {
		p.see(machine{launch: 0.4, name: 0.02}.under(p.now))
	}
	require.True(t, p.cannot)
	require.EqualValues(t, mostSlots, p.now.slots)

	p = newPlanner(0.01)
	p.can = nil
	require.Equal(t, plan{slots: 1}, p.see(machine{launch: 0.4}.under(p.now)))
	require.True(t, p.cannot)
}

// A load that goes comes back to exact sums, but not for one quiet look.
func TestAllIsFollowedAgainWhenThereIsRoom(t *testing.T) {
	p := newPlanner(0.01)
	p.see(machine{launch: 0.4}.under(p.now))
	require.Greater(t, p.now.slots, uint32(1))
	slots := p.now.slots
	p.see(machine{launch: 0.001}.under(p.now))
	require.Greater(t, p.now.slots, uint32(1), "of %d", slots)
	looks := 0
	for ; p.now.slots > 1; looks++ {
		require.Less(t, looks, 30)
		p.see(machine{launch: 0.001}.under(p.now))
	}
	require.GreaterOrEqual(t, looks, calmLooks-1)
}

// Where the load is steady, the number of slots does not change with every look.
func TestThePlanSettles(t *testing.T) {
	p := newPlanner(0.01)
	changes := 0
	for i := range 50 {
		was := p.now.slots
		p.see(machine{launch: 0.4 * (1 + 0.1*float64(i%2))}.under(p.now))
		if p.now.slots != was {
			changes++
		}
	}
	require.LessOrEqual(t, changes, 4)
}
