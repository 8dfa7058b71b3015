// SPDX-License-Identifier: Apache-2.0

package simnodes

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/collective"
	"github.com/gpu-gadgets/gpu-gadgets/operators/decode/nccl"
)

func small(t testing.TB) *Fleet {
	t.Helper()
	f, err := New(Config{Seed: 3, Nodes: 30, Jobs: 12, MaxRanks: 4096, Fault: 4 * time.Second, FaultSpread: time.Second})
	require.NoError(t, err)
	return f
}

// TestRingIsThatOfTheGadget: written field by field, as the mirror of the gadget's struct is read.
func TestRingIsThatOfTheGadget(t *testing.T) {
	f := small(t)
	for _, n := range f.nodes {
		s := &n.slots[0]
		if s.job == nil || s.job.Reason == collective.Mismatch {
			continue
		}
		p := s.job.progress(s.rank, false, 3*time.Second)
		b := make([]byte, ringBytes)
		n.ring(b, s, s.job.communicatorOf(s.rank, false), p)
		var ring [nccl.Ring]nccl.Operation
		_, err := binary.Decode(b, binary.NativeEndian, &ring)
		require.NoError(t, err)
		o := ring[p.issued%nccl.Ring]
		require.Equal(t, p.issued, o.Seq)
		require.Equal(t, int32(-1), o.Peer)
		require.Equal(t, s.pid, o.TID)
		require.Equal(t, p.done >= o.Seq, o.Flags == nccl.Done && o.DoneNS > o.ReturnNS)
		require.EqualValues(t, collective.Bfloat16, o.Type)
		require.Greater(t, o.EnterNS, uint64(n.booted))
		return
	}
	t.Fatal("no node has a rank")
}

// TestProgressOnlyGrows, in every rank, and stops for ever where the job hangs.
func TestProgressOnlyGrows(t *testing.T) {
	f := small(t)
	reasons := map[collective.Reason]int{}
	for _, j := range f.Jobs() {
		reasons[j.Reason]++
		for rank := range min(j.Size, 24) {
			var before progress
			for at := time.Duration(0); at < 8*time.Second; at += 7 * time.Millisecond {
				p := j.progress(rank, false, at)
				require.GreaterOrEqual(t, p.issued, before.issued)
				require.GreaterOrEqual(t, p.done, before.done)
				require.LessOrEqual(t, p.done, p.issued)
				require.LessOrEqual(t, p.doneAt, at)
				before = p
			}
			if j.hangs() {
				require.Equal(t, uint64(j.faultStep)*perStep, before.done, "%s rank %d", j.name(), rank)
			}
		}
	}
	require.Positive(t, reasons[collective.Missing])
	require.Positive(t, reasons[collective.Mismatch])
	require.Positive(t, reasons[""])
}

// TestTheSameSeedGivesTheSameTruth.
func TestTheSameSeedGivesTheSameTruth(t *testing.T) {
	a, b := small(t), small(t)
	for i, j := range a.Jobs() {
		require.Equal(t, j.Truth(), b.Jobs()[i].Truth())
	}
}

func BenchmarkTables(b *testing.B) {
	f := small(b)
	for b.Loop() {
		for _, n := range f.nodes {
			for _, id := range []string{memoryID, ranksID} {
				if _, err := n.tables(id, 5*time.Second); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
}
