// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// simulated is a process that allocates and frees at random, and the truth about it.
type simulated struct {
	rows  []Row
	known []PeakRow
	live  [][]int64 // sizes, by row
	peak  int64     // on device 0, at any moment
}

func newSimulated(rows int) *simulated {
	s := &simulated{known: make([]PeakRow, rows), live: make([][]int64, rows)}
	for range rows {
		s.rows = append(s.rows, Row{Process: Process{ID: 1, PID: 1, Comm: "p"}, Kind: "device"})
	}
	return s
}

func (s *simulated) step(r *rand.Rand) {
	n := r.IntN(len(s.rows))
	v, live := &s.rows[n].Values, s.live[n]
	if len(live) > 0 && r.IntN(2) == 0 {
		at := r.IntN(len(live))
		v.FreedBytes, v.InuseBytes = v.FreedBytes+live[at], v.InuseBytes-live[at]
		s.live[n] = append(live[:at], live[at+1:]...)
		return
	}
	size := r.Int64N(1000) + 1
	s.live[n] = append(live, size)
	v.AllocBytes, v.InuseBytes = v.AllocBytes+size, v.InuseBytes+size
	v.PeakBytes = max(v.PeakBytes, v.InuseBytes)
	var sum int64
	for i := range s.rows {
		sum += s.rows[i].InuseBytes
	}
	s.peak = max(s.peak, sum)
}

func (s *simulated) each(yield func(*PeakRow, *Row) bool) {
	for i := range s.rows {
		if !yield(&s.known[i], &s.rows[i]) {
			return
		}
	}
}

// TestThePeakIsBetweenItsBounds, and what rows held then adds up to it, however seldom they
// are read. Where nothing happens between two readings but one call, it is the truth.
func TestThePeakIsBetweenItsBounds(t *testing.T) {
	isBelow := false
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 3))
		s := newSimulated(1 + r.IntN(6))
		var p Peaks
		every := 1 + int(seed%7)
		var before []int64 // what the rows held when the peak was seen
		var highest int64
		for step := range 300 {
			s.step(r)
			if step%every > 0 {
				continue
			}
			p.Read(time.Unix(int64(step), 0), s.each)
			var sum int64
			var held []int64
			for i := range s.rows {
				sum += s.rows[i].InuseBytes
				held = append(held, s.rows[i].InuseBytes)
			}
			if sum > highest {
				highest, before = sum, held
			}
		}
		p.Read(time.Unix(300, 0), s.each)
		got := p.All()
		require.Len(t, got, 1)
		require.LessOrEqual(t, got[0].Bytes, s.peak, seed)
		require.GreaterOrEqual(t, got[0].MostBytes, s.peak, seed)
		isBelow = isBelow || got[0].Bytes < s.peak
		if every == 1 {
			require.Equal(t, []int64{s.peak, s.peak}, []int64{got[0].Bytes, got[0].MostBytes}, seed)
		}
		if got[0].At != time.Unix(300, 0) {
			for i := range s.known {
				require.Equal(t, before[i], s.known[i].AtPeakBytes, seed)
			}
		}
	}
	require.True(t, isBelow, "readings that miss the peak were among the cases")
}

// TestPeaksAreOfTheirOwnMemory: pinned host memory, tensors, other devices and other
// processes do not move the moment.
func TestPeaksAreOfTheirOwnMemory(t *testing.T) {
	row := func(process uint64, kind string, device int32) *Row {
		return &Row{Process: Process{ID: process, PID: uint32(process), Comm: "p"}, Kind: kind, Device: device}
	}
	rows := []*Row{row(1, "device", 0), row(1, "vmm", 0), row(1, "host", 0), row(1, KindTensor, 0), row(1, "device", 1), row(2, "device", 0)}
	known := make([]PeakRow, len(rows))
	var p Peaks
	for second, inuse := range [][]int64{{10, 5, 1, 9, 1, 1}, {3, 4, 900, 2, 800, 700}, {0, 0, 0, 0, 0, 0}} {
		for i, bytes := range inuse {
			v := &rows[i].Values
			v.AllocBytes += max(bytes-v.InuseBytes, 0)
			v.InuseBytes, v.PeakBytes = bytes, max(v.PeakBytes, bytes)
		}
		p.Read(time.Unix(int64(second), 0).UTC(), func(yield func(*PeakRow, *Row) bool) {
			for i := range rows {
				if !yield(&known[i], rows[i]) {
					return
				}
			}
		})
	}
	var at []int64
	for _, k := range known {
		at = append(at, k.AtPeakBytes)
	}
	require.Equal(t, []int64{10, 5, 900, 9, 800, 700}, at)
	var texts []string
	for _, peak := range p.All() {
		texts = append(texts, peak.String())
	}
	require.Equal(t, []string{
		"p[1] held the most on GPU 0 at 00:00:00: 15 B, exactly",
		"p[1] held the most in tensors on GPU 0 at 00:00:00: 9 B, exactly",
		"p[1] held the most on GPU 1 at 00:00:01: 800 B, exactly",
		"p[1] held the most of the host's memory in contexts of GPU 0 at 00:00:01: 900 B, exactly",
		"p[2] held the most on GPU 0 at 00:00:01: 700 B, exactly",
	}, texts)
	require.True(t, p.All()[0].Has(rows[1]))
	require.False(t, p.All()[0].Has(rows[2]))

	p.Restart()
	require.Empty(t, p.All())
}
