// SPDX-License-Identifier: Apache-2.0

package collective

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// digested gives a rank's observation digests, which differ from those of others from a collective on; 0: none does.
func digested(o Observation, differs uint64) Observation {
	first := o.Issued/Milestone - min(o.Issued/Milestone, DigestCount-1)
	for n := max(first, 1); n <= o.Issued/Milestone; n++ {
		digest := n << 32
		if differs != 0 && n*Milestone >= differs {
			digest += uint64(o.Rank+1) << 20
		}
		o.Digests.Set(n, digest)
	}
	return o
}

// TestDigestsShowACallThatDiffers, of which no rank has the call itself any more. All wait for collective 401 or a later one.
func TestDigestsShowACallThatDiffers(t *testing.T) {
	const text = "rank 1 of 3 of communicator 0xabcdef0123 has issued other collectives than most ranks: the first is one of 433 to 448 (waited 5.0 s)"
	for _, c := range []struct {
		name    string
		issued  [3]uint64
		differs [3]uint64
		change  func(*Observation)
		want    Reason
		text    string
	}{
		{name: "one rank", issued: [3]uint64{600, 600, 600}, differs: [3]uint64{0, 440, 0}, want: Mismatch, text: text},
		{name: "one rank, and one is not as far", issued: [3]uint64{470, 600, 700}, differs: [3]uint64{0, 440, 0}, want: Mismatch, text: text},
		{name: "each rank", issued: [3]uint64{600, 600, 600}, differs: [3]uint64{440, 440, 440}, want: Mismatch,
			text: "ranks 0-2 of 3 of communicator 0xabcdef0123 have issued different collectives: the first is one of 433 to 448 (waited 5.0 s)"},
		{name: "none", issued: [3]uint64{600, 600, 600}, want: Slow},
		{name: "one that was completed", issued: [3]uint64{600, 600, 600}, differs: [3]uint64{0, 390, 0}, want: Slow},
		{name: "ranks are too far from each other", issued: [3]uint64{500, 1100, 500}, differs: [3]uint64{0, 440, 0}, want: Slow},
		{name: "a gadget without digests", issued: [3]uint64{600, 600, 600}, differs: [3]uint64{0, 440, 0}, change: func(o *Observation) { o.Digests = nil }, want: Slow},
		{name: "numbers that cannot be compared", issued: [3]uint64{600, 600, 600}, differs: [3]uint64{0, 440, 0}, change: func(o *Observation) { o.Late = true }, want: Slow},
		{name: "a digest of a number that was given back", issued: [3]uint64{600, 600, 600}, change: func(o *Observation) { o.Digests.Set(38, uint64(o.Rank+1)<<40) }, want: Slow},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := analyzer(t)
			at := start + 5*second
			for n, issued := range c.issued {
				o := digested(behind(n, 400, issued, at), c.differs[n])
				if c.change != nil {
					c.change(&o)
				}
				observe(t, a, o)
			}
			events := a.Evaluate(at)
			require.Len(t, events, 1)
			require.Equal(t, c.want, events[0].Reason, events[0].String(at))
			if c.text != "" {
				require.Equal(t, c.text, events[0].String(at))
			}
			require.Empty(t, a.Evaluate(at), "it is reported once")
		})
	}
}

// behind returns an observation of a rank of which so many are done, all issued since are not, and a thread waits for them.
func behind(n int, done, issued uint64, at Time) Observation {
	o := Observation{At: at, Process: Process{ID: uint64(n + 1)}, Communicator: world, Rank: n, State: Running, Issued: issued, Done: done, DoneAt: start - second}
	add := func(seq uint64) {
		o.Operations = append(o.Operations, Operation{Seq: seq, Kind: AllReduce, Count: 64, DType: Float32, Peer: None,
			Enter: start + Time(seq), Return: start + Time(seq), PendingAt: at})
	}
	add(done)
	o.Operations[0].DoneBy, o.Operations[0].PendingAt = start-second, 0
	add(done + 1)
	for seq := issued - History + 2; seq <= issued; seq++ {
		add(seq)
	}
	return o
}

// TestTheCommunicatorsPassedCollectiveIsOfAll: what one rank has completed is not where ranks differ.
func TestTheCommunicatorsPassedCollectiveIsOfAll(t *testing.T) {
	a := analyzer(t)
	at := start + 5*second
	for n := range 3 {
		o := digested(behind(n, 400, 600, at), 0)
		if n == 1 {
			o = digested(o, 440)
		}
		if n == 2 {
			o = digested(behind(n, 448, 600, at), 0)
		}
		observe(t, a, o)
	}
	for _, v := range a.Evaluate(at) {
		require.NotEqual(t, Mismatch, v.Reason, v.String(at))
	}
}
