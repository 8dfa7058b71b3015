// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// program takes own seconds between two calls of the witness, and what is charged for the
// probes between them is less than what they take.
type program struct{ own, takes, charged float64 }

const lightly = 0.1 // what the witness takes of all that is probed in windows

func (p program) add(r *rate, seconds, part, noise float64) {
	calls := seconds / (p.own + part*p.takes)
	calls = math.Round(max(calls+noise*math.Sqrt(calls)*rand.NormFloat64(), 0))
	r.add(calls, calls*part*p.charged*1e9, seconds)
}

func (p program) observed(windows int, noise float64) *witness {
	w := &witness{}
	for range windows {
		p.add(&w.windows, slot.Seconds(), 1, noise)
		p.add(&w.alone, weighing.Seconds(), lightly, noise)
	}
	return w
}

func TestFactorIsThatOfTheProgramAndNotOfTheCharge(t *testing.T) {
	for _, p := range []program{
		{own: 40e-6, takes: 25e-6, charged: 5e-6},
		{own: 4e-6, takes: 4e-6, charged: 4e-6},
		{own: 100e-6, takes: 0, charged: 5e-6}, // it waits, and has the time
	} {
		f, deviation, known := p.observed(50, 0).measured()
		require.True(t, known)
		require.InEpsilon(t, (p.own+p.takes)/p.own, f, 0.02)
		require.Less(t, deviation, 0.05)
	}
}

// A thread with time left does not fall behind in a weighing, although it does in windows.
func TestThreadsWithTimeLeftAreNotSlowedByTheWitness(t *testing.T) {
	const own, takes, charged = 4e-6, 8e-6, 6e-6
	const pause = 2e-6 // between calls, where it has time left
	w := &witness{}
	for range 50 {
		calls := slot.Seconds() / (own + takes)
		w.windows.add(calls, calls*charged*1e9, slot.Seconds())
		calls = weighing.Seconds() / (own + pause)
		w.alone.add(calls, calls*lightly*charged*1e9, weighing.Seconds())
		w.busy.add(control.Seconds()*own/(own+pause), control.Seconds(), calls*(own+lightly*takes), weighing.Seconds(), calls*lightly*charged)
	}
	f, deviation, known := w.measured()
	require.True(t, known)
	require.InEpsilon(t, (own+takes)/(own+pause), f, 0.01)
	require.Less(t, deviation, 0.05)
	w.busy = busy{}
	before, _, _ := w.measured()
	require.Greater(t, before, 1.1*f, "where that is not known it is taken to run all of the time")
}

func TestFactorIsWithinTwoOfItsDeviations(t *testing.T) {
	p := program{own: 100e-6, takes: 60e-6, charged: 15e-6}
	const all = 2000
	var within int
	var sum float64
	for range all {
		f, deviation, known := p.observed(30, 1).measured()
		require.True(t, known)
		sum += f
		if truth := (p.own + p.takes) / p.own; math.Abs(f-truth) <= 2*deviation*f {
			within++
		}
	}
	require.InEpsilon(t, (p.own+p.takes)/p.own, sum/all, 0.02, "it is right on average")
	require.Greater(t, within, all*9/10)
}

func TestFactorIsNotKnownFromLittle(t *testing.T) {
	p := program{own: 40e-6, takes: 25e-6, charged: 5e-6}
	few := p.observed(enough-1, 0)
	_, _, known := few.factor()
	require.False(t, known)
	_, _, known = program{own: 1, takes: 1, charged: 1}.observed(100, 0).factor()
	require.False(t, known, "it was never called")
	w := p.observed(enough, 0)
	before, _, known := w.factor()
	require.True(t, known)
	w.apis = []uint32{copies}
	w.choose([]uint32{launch, name}, map[uint32]float64{launch: 0.9, name: 0.1})
	after, deviation, known := w.factor()
	require.True(t, known, "another witness begins with what was known")
	require.Equal(t, before, after)
	require.Equal(t, unknownDoubt, 2*deviation)
}

func TestWitnessIsWhatCostsLeast(t *testing.T) {
	var w witness
	w.choose([]uint32{1, 2, 3, 4}, map[uint32]float64{1: 0.8, 2: 0.12, 3: 0.05, 4: 0.03})
	require.Equal(t, []uint32{4, 3}, w.apis, "as many as stay light")
	w.choose([]uint32{1, 3, 4}, map[uint32]float64{1: 0.8, 3: 0.3, 4: 0.3})
	require.Equal(t, []uint32{4, 3}, w.apis, "they stay while they are followed in windows")
	w.choose([]uint32{1, 2}, map[uint32]float64{1: 0.7, 2: 0.3})
	require.Equal(t, []uint32{2}, w.apis)
	w.choose([]uint32{1}, map[uint32]float64{1: 0.7})
	require.Empty(t, w.apis, "one function alone is no witness against itself")
}

func TestWeighingsAreNotTakenForWindows(t *testing.T) {
	w := witness{hits: map[uint32]float64{copies: 30}}
	s := seen{hits: map[uint32]float64{launch: 100, copies: 40}, ns: map[uint32]float64{launch: 1000, copies: 400}}
	w.takeOut(&s)
	require.Equal(t, map[uint32]float64{launch: 1000, copies: 100, weighings: 300}, s.ns)
	w.takeOut(&s)
	require.InDelta(t, 300, s.ns[weighings], 0.1)
}
