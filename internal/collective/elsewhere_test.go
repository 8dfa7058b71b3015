// SPDX-License-Identifier: Apache-2.0

package collective

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// stage observes the second stage of a pipeline on node b: four tensor ranks, each of which receives from its rank of the
// first stage, and four of another pipeline. One tensor rank and one of the other pipeline reduce gradients together. waits:
// the first four wait for what they receive.
func stage(t *testing.T, a *Analyzer, at Time, node string, waits bool) {
	t.Helper()
	for n := range 8 {
		process := Process{Node: node, ID: uint64(n + 1), PID: uint32(100 + n)}
		received := op(Recv, 5, start)
		if received.Peer = 0; n < 4 && waits {
			received = received.pending(at)
		} else {
			received = received.doneBy(start + second/1000)
		}
		pipeline := Observation{At: at, Process: process, Communicator: Communicator{Hash: uint64(0x9900 + n), Size: 2}, Rank: 1, State: Running,
			Operations: []Operation{received}}
		gradients := Observation{At: at, Process: process, Communicator: Communicator{Hash: uint64(0xd900 + n%4), Size: 2}, Rank: n / 4, State: Running,
			Issued: 4, Done: 4, Operations: []Operation{op(ReduceScatter, 4, start-second).doneBy(start - second/2)}}
		if n >= 4 {
			gradients.Issued, gradients.Operations = 5, append(gradients.Operations, op(ReduceScatter, 5, start+second/100).pending(at))
		}
		observe(t, a, pipeline, gradients)
	}
}

// TestAStageThatWaitsForAnotherNodeIsNotBlamed: the first stage, on another node, stalls.
func TestAStageThatWaitsForAnotherNodeIsNotBlamed(t *testing.T) {
	texts := judged(t, 60, func(a *Analyzer, at Time) { stage(t, a, at, "", true) })
	require.Len(t, texts, 4)
	for n, text := range texts {
		require.Equal(t, fmt.Sprintf("found at 30s: rank 1 waits in Recv 5 from rank 0 of communicator 0x%08x, for 30s; rank 0 is on another node; 0x%08x waits behind it",
			0x9900+n, 0xd900+n), text)
	}
	blamed := judged(t, 60, func(a *Analyzer, at Time) { stage(t, a, at, "", false) })
	require.Len(t, blamed, 4)
	require.Contains(t, blamed[0], "rank 0 of 2 is missing and runs, before ReduceScatter 5 of communicator 0x0000d900", "it waits for nothing")
}

// TestAStageThatWaitsForASilentNodeIsNotBlamed, where all nodes are judged together: nothing is heard of the first stage's
// since a minute.
func TestAStageThatWaitsForASilentNodeIsNotBlamed(t *testing.T) {
	a, err := New(Config{Silent: 15 * time.Second})
	require.NoError(t, err)
	for n := range 4 {
		observe(t, a, Observation{At: start, Process: Process{Node: "a", ID: uint64(n + 1)}, Communicator: Communicator{Hash: uint64(0x9900 + n), Size: 2}, Rank: 0,
			State: Running, Peers: []Progress{{Kind: Send, Peer: 1, Issued: 4, Done: 4, Enter: start}}})
	}
	var texts []string
	for s := range Time(60) {
		at := start + s*second
		stage(t, a, at, "b", true)
		for _, v := range a.Evaluate(at) {
			texts = append(texts, v.String(at))
		}
	}
	// Until the node is silent, its ranks are at fault.
	require.NotEmpty(t, texts)
	require.Len(t, a.Verdicts(), 1, "one node is lost")
	v := a.Verdicts()[0]
	require.Equal(t, "rank 1 waits in Recv 5 from rank 0 of communicator 0x00009900, for 59s; rank 0 is not heard of: "+
		"node a has been silent for 59s; 7 other communicators wait behind it", v.String(start+59*second))
	require.Equal(t, []LostNode{{"a", start}}, v.Lost)
}
