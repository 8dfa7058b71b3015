// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"math/rand"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
)

func at(minute int, lines map[string][2]int64) *Profile {
	var rows []Row
	for name, v := range lines {
		rows = append(rows, Row{
			Stack: stack.Stack{{Kind: stack.KindPython, Function: name, File: "a.py", Line: 1}}, Kind: KindTensor,
			Values: Values{InuseBytes: v[0], InuseObjects: 1, AllocBytes: v[1], AllocObjects: 1},
		})
	}
	return New(time.Unix(int64(60*minute), 0), rows)
}

func names(leaks []Leak) (all []string) {
	for _, l := range leaks {
		all = append(all, strings.TrimSuffix(l.Line, " (a.py:1)"))
	}
	return all
}

func TestLeaksAreWhatGrowsSteadily(t *testing.T) {
	var profiles []*Profile
	random := rand.New(rand.NewSource(1))
	for minute := range 12 {
		m := int64(minute)
		profiles = append(profiles, at(minute, map[string][2]int64{
			"leak":    {m << 20, 100 * m << 20},
			"slow":    {m<<10 + random.Int63n(4<<10), 100 * m << 20},
			"busy":    {m << 19, m * m << 20}, // as its work does
			"warm up": {min(m, 4) << 24, 100 * m << 20},
			"noise":   {random.Int63n(1 << 30), 100 * m << 20},
			"steady":  {1 << 30, 100 * m << 20},
			"falls":   {(12 - m) << 20, 100 * m << 20},
		}))
	}
	random.Shuffle(len(profiles), func(i, j int) { profiles[i], profiles[j] = profiles[j], profiles[i] })
	leaks, err := Leaks(profiles, 0.95)
	require.NoError(t, err)
	require.Equal(t, []string{"leak", "busy", "slow"}, names(leaks))
	require.InDelta(t, 60<<20, leaks[0].BytesPerHour, 1)
	require.EqualValues(t, 11<<20, leaks[0].Grew)
	require.Greater(t, leaks[0].Confidence, 0.9999)
	require.False(t, leaks[0].MoreWork)
	require.True(t, leaks[1].MoreWork)
}

// Of lines that only fluctuate, one in twenty passes a test at 95 %.
func TestChanceIsRarelyCalledALeak(t *testing.T) {
	random := rand.New(rand.NewSource(2))
	const lines = 400
	var profiles []*Profile
	for minute := range 10 {
		all := map[string][2]int64{}
		for n := range lines {
			all[string(rune('a'+n%26))+string(rune('a'+n/26))] = [2]int64{random.Int63n(1 << 30), int64(minute) << 30}
		}
		profiles = append(profiles, at(minute, all))
	}
	leaks, err := Leaks(profiles, 0.95)
	require.NoError(t, err)
	require.Less(t, len(leaks), lines*6/100)
}

func TestGrowthNeedsFourTimes(t *testing.T) {
	p := func(minute int) *Profile { return at(minute, map[string][2]int64{"f": {int64(minute), 1}}) }
	for _, few := range [][]*Profile{nil, {p(0), p(1), p(2)}, {p(0), p(1), p(2), p(2)}} {
		_, err := Leaks(few, 0)
		require.ErrorIs(t, err, ErrFewProfiles)
	}
	leaks, err := Leaks([]*Profile{p(0), p(1), p(2), p(3)}, 0.95)
	require.NoError(t, err)
	require.Len(t, leaks, 1)
}

// A line that leaks through many callers, each of which calls it once, leaks.
func TestALineLeaksOverAllStacksThatEndThere(t *testing.T) {
	line := func(function string) stack.Frame {
		return stack.Frame{Kind: stack.KindPython, Function: function, File: "a.py", Line: 1}
	}
	var profiles []*Profile
	for minute := range 8 {
		var rows []Row
		for caller := range minute + 1 {
			rows = append(rows, Row{Stack: stack.Stack{line("cache"), line(string(rune('a' + caller)))}, Kind: KindTensor,
				Values: Values{InuseBytes: 1 << 20, InuseObjects: 1, AllocBytes: 1 << 20, AllocObjects: 1}})
		}
		profiles = append(profiles, New(time.Unix(int64(60*minute), 0), rows))
	}
	leaks, err := Leaks(profiles, 0.95)
	require.NoError(t, err)
	require.Len(t, leaks, 1)
	require.Equal(t, "cache (a.py:1)", leaks[0].Line)
	require.EqualValues(t, 7<<20, leaks[0].Grew)
	require.InDelta(t, 60<<20, leaks[0].BytesPerHour, 1)
}

// In a program without Python, what one function leaks is not hidden by what another gives back: both end in the driver.
func TestNativeFunctionsLeakOnTheirOwn(t *testing.T) {
	ending := func(function string) stack.Stack {
		return stack.Stack{
			{Kind: stack.KindNative, Function: "cuMemAlloc_v2", File: "/usr/lib/libcuda.so.1"},
			{Kind: stack.KindNative, Function: function, File: "/app/server"},
		}
	}
	var profiles []*Profile
	for minute := range int64(8) {
		profiles = append(profiles, New(time.Unix(60*minute, 0), []Row{
			{Stack: ending("KVCache::grow()"), Kind: "device", Values: Values{InuseBytes: minute << 20}},
			{Stack: ending("Scratch::fit()"), Kind: "device", Values: Values{InuseBytes: (16 - 2*minute) << 20}},
		}))
	}
	leaks, err := Leaks(profiles, 0.95)
	require.NoError(t, err)
	require.Len(t, leaks, 1)
	require.Equal(t, "KVCache::grow() (server)", leaks[0].Line)

	lines := Diff(profiles[0], profiles[7]).ByLine()
	require.Len(t, lines, 2)
	require.EqualValues(t, 7<<20, lines[0].Delta(InuseSpace))
}
