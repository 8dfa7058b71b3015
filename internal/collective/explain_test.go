// SPDX-License-Identifier: Apache-2.0

package collective

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestThousandsOfCommunicatorsInACycle: two processes, each of which is missing in half of them.
// It took minutes, each second.
func TestThousandsOfCommunicatorsInACycle(t *testing.T) {
	a := analyzer(t)
	now := 1000 * second
	const pairs = 2000
	for hash := range uint64(2 * pairs) {
		for n := range 2 {
			o := done(rank(n, 9, now-second, now+2*second))
			if hash%2 == uint64(n) {
				o = rank(n, 10, now, now+2*second)
			}
			o.Communicator = Communicator{Hash: hash + 1, Size: 2}
			observe(t, a, o)
		}
	}
	began := time.Now()
	events := a.Evaluate(now + 2*second)
	require.Less(t, time.Since(began), 10*time.Second)
	require.Len(t, events, 1)
	require.Equal(t, Mismatch, events[0].Reason)
	require.Len(t, events[0].Behind, 2*pairs-1)
}

// randomItems makes operations in which some processes wait for others.
func randomItems(r *rand.Rand) ([]*stuck, map[unit][]int) {
	items, in := make([]*stuck, 1+r.IntN(12)), map[unit][]int{}
	members := make([]*member, 1+r.IntN(10))
	for i := range members {
		members[i] = &member{Observation: Observation{Rank: i}, unit: unit{process: processKey{id: uint64(i)}}}
		if r.IntN(30) == 0 {
			members[i].State = Gone
		}
	}
	for n := range items {
		items[n] = &stuck{comm: &communicator{}}
	}
	other := &communicator{} // nothing waits in it
	for n, s := range items {
		for _, m := range members {
			switch r.IntN(8) {
			case 0, 1:
				s.missing = append(s.missing, m)
			case 2, 3, 4:
				s.waiting = append(s.waiting, m)
				in[m.unit] = append(in[m.unit], n)
			}
		}
		switch r.IntN(12) {
		case 0:
			s.ahead, s.missing = items[r.IntN(len(items))].comm, nil
			s.inverted = r.IntN(2) == 0
		case 1:
			s.ahead, s.missing = other, nil
		}
		if s.ahead == s.comm {
			s.ahead, s.inverted = nil, false
		}
	}
	return items, in
}

// search finds the cause of one item, as explain does for all.
func search(items []*stuck, in map[unit][]int, from int) int {
	queue, seen := []int{from}, map[int]bool{from: true}
	first, last := from, unknown
	add := func(n int) {
		if !seen[n] {
			seen[n] = true
			queue = append(queue, n)
		}
	}
	for at := 0; at < len(queue); at++ {
		n := queue[at]
		s := items[n]
		first = min(first, n)
		switch {
		case s.inverted:
			for i, o := range items {
				if o.comm == s.ahead && o.inverted {
					return min(n, i)
				}
			}
			return n
		case s.ahead != nil:
			isKnown := false
			for i, o := range items {
				if o.comm == s.ahead {
					isKnown = true
					add(i)
				}
			}
			if !isKnown && last == unknown {
				last = n
			}
			continue
		}
		if _, cycle := free(s, in, n); !cycle {
			return n
		}
		for _, m := range s.missing {
			for _, i := range in[m.unit] {
				add(i)
			}
		}
	}
	if last != unknown {
		return last
	}
	return first
}

// TestCausesAreThoseOfASearchFromEachItem whichever wait for which.
func TestCausesAreThoseOfASearchFromEachItem(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	far := 0
	for range 5000 {
		items, in := randomItems(r)
		cause := explain(items, in)
		for n := range items {
			want := search(items, in, n)
			require.Equal(t, want, cause[n], "item %d", n)
			if want != n {
				far++
			}
		}
	}
	require.Greater(t, far, 2000)
}
