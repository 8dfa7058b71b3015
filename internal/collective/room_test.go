// SPDX-License-Identifier: Apache-2.0

package collective

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAProcessIsReplacedInAFullTable: a rank comes back as another process where there is room for no
// more, of its own tenant or of another one. Whatever is refused, nothing is left half removed.
func TestAProcessIsReplacedInAFullTable(t *testing.T) {
	const most = 8
	now := 1000 * second
	at := func(hash, process uint64, tenant string) Observation {
		o := rank(0, 1, now, now)
		o.Communicator.Hash, o.Process.ID, o.Tenant = hash, process, tenant
		return o
	}
	for name, c := range map[string]struct {
		tenant string
		want   error
		left   uint64 // the process that is the rank then
	}{
		"by its own tenant":     {"many", nil, 100},
		"by one with room":      {"new", nil, 100},
		"by one without room":   {"others", ErrFull, 1},
		"by one that has fewer": {"few", nil, 100},
	} {
		t.Run(name, func(t *testing.T) {
			a, err := New(Config{MaxRanks: most})
			require.NoError(t, err)
			for n := range uint64(most) {
				tenant := "many"
				switch {
				case n >= most-2:
					tenant = "others"
				case n == most-3:
					tenant = "few"
				}
				require.NoError(t, a.Observe(at(n+1, n+1, tenant)))
			}
			later := at(1, 100, c.tenant)
			later.At += second
			require.ErrorIs(t, a.Observe(later), c.want)
			require.Equal(t, most, a.ranks)
			require.Len(t, a.comms, most)
			require.Equal(t, c.left, a.comms[1].members[0].Process.ID)

			a.Suspects(now)
			a.Quiet(now)
			a.Ranks(now)
			a.Gone(later.Process, now)
			a.Evaluate(now + second)
			a.Evaluate(10000 * second)
			require.Zero(t, a.ranks)
			require.Empty(t, a.comms)
			require.Empty(t, a.members)
		})
	}
}

// sending returns an observation of a rank that has sent to a peer once, by its newest operation.
func sending(o Observation, peers ...int) Observation {
	o.Operations = nil
	for i, peer := range peers {
		o.Operations = append(o.Operations, Operation{Seq: 1, Kind: Send, Count: 1, Peer: peer, Enter: o.At - second + Time(i), PendingAt: o.At})
	}
	return o
}

// TestPeersAreRanksOfTheCommunicator: NCCL refuses others, and what the gadget has not counted has no number.
func TestPeersAreRanksOfTheCommunicator(t *testing.T) {
	a := analyzer(t)
	now := 1000 * second
	o := sending(rank(0, 1, now, now), -1, 1, 2, 3, 1<<30)
	o.Operations[2].Seq = 0
	for _, peer := range []int{-1, 0, 1, 3, 1 << 20} {
		o.Peers = append(o.Peers, Progress{Kind: Recv, Peer: peer, Issued: 1})
	}
	o.Peers = append(o.Peers, Progress{Kind: Recv, Peer: 2})
	observe(t, a, o)
	require.Equal(t, []peerKey{{Recv, 0}, {Send, 1}, {Recv, 1}}, a.comms[world.Hash].members[0].sortedPeers())
	require.Equal(t, 3, a.peers)
}

// TestATenantLeavesPeersToOthers: one whose ranks send to another peer in each call.
func TestATenantLeavesPeersToOthers(t *testing.T) {
	const ranks = 16
	a, err := New(Config{MaxRanks: ranks})
	require.NoError(t, err)
	fill := func(tenant string, process uint64) int {
		o := rank(0, 1, 5, 1000*second)
		o.Tenant, o.Process.ID, o.Communicator = tenant, process, Communicator{Hash: process}
		for n := 0; ; n += History {
			peers := make([]int, History)
			for i := range peers {
				peers[i] = n + i
			}
			if err := a.Observe(sending(o, peers...)); err != nil {
				require.ErrorIs(t, err, ErrPeers)
				return len(a.comms[process].members[0].peers)
			}
		}
	}
	const all = peersPerRank * ranks
	require.Equal(t, all*3/4, fill("hostile", 1))
	require.Equal(t, all/4, fill("honest", 2))
	require.Zero(t, fill("third", 3))
	require.Zero(t, fill("hostile", 4))
	require.Equal(t, all, a.peers)
	a.Evaluate(10000 * second)
	require.Zero(t, a.peers)
	require.Empty(t, a.peersOf)

	// And of one rank.
	a = analyzer(t)
	require.Equal(t, maxPeers, fill("hostile", 1))
}

// TestAPeerWithoutRoomIsNotBlamed: rank 1 receives, and the gadget had no room to count it.
func TestAPeerWithoutRoomIsNotBlamed(t *testing.T) {
	for seq, want := range map[uint64]int{0: 0, 2: 1} {
		a := analyzer(t)
		now := 1000 * second
		receiving := sending(rank(1, 1, now, now), 0)
		receiving.Operations[0].Kind, receiving.Operations[0].Seq = Recv, seq
		o := sending(rank(0, 1, now, now), 1)
		if seq == 2 {
			receiving.Operations = nil // it does not, and would have been counted
		}
		observe(t, a, o, receiving)
		require.Len(t, a.Evaluate(now+2*second), want)
	}
}
