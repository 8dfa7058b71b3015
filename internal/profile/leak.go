// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"cmp"
	"errors"
	"math"
	"slices"
	"time"
)

// LeakProfiles is how many profiles Leaks needs: with fewer, no order of values is
// unlikely enough to distinguish growth from chance.
const LeakProfiles = 4

// ErrFewProfiles is returned by Leaks.
var ErrFewProfiles = errors.New("growth over time needs at least four profiles, of different times")

// Leak is a line whose in-use bytes grow from profile to profile, over all stacks that end there.
type Leak struct {
	Line   string // as Stack.Where has it
	Kind   string
	Device int32
	// BytesPerHour is the median of the slopes between all pairs of profiles (Theil and
	// Sen), which a few odd ones among them do not move.
	BytesPerHour float64
	// Grew is in use at the end less at the beginning.
	Grew, Objects int64
	// Confidence is how unlikely the order of the values would be if they did not grow:
	// 1 − p of Mann and Kendall's test for a trend, one-sided.
	Confidence float64
	// MoreWork: it allocates by more than a quarter more than it did in the first half,
	// so that growth may be that of the load.
	MoreWork bool
}

// A line grows steadily if the later half of the time has at least this part of the
// slope: what only warms up does not.
const steady = 0.25

// Leaks are the lines whose in-use bytes grow steadily over profiles of different times,
// the fastest first, with a Confidence of at least that. Processes and spans do not take
// part, as in Diff. Order and times of the profiles are their own; ErrFewProfiles.
func Leaks(profiles []*Profile, confidence float64) ([]Leak, error) {
	profiles = slices.Clone(profiles)
	slices.SortStableFunc(profiles, func(a, b *Profile) int { return a.Time.Compare(b.Time) })
	profiles = slices.CompactFunc(profiles, func(a, b *Profile) bool { return a.Time.Equal(b.Time) })
	if len(profiles) < LeakProfiles {
		return nil, ErrFewProfiles
	}
	hours := make([]float64, len(profiles))
	for i, p := range profiles {
		hours[i] = p.Time.Sub(profiles[0].Time).Seconds() / time.Hour.Seconds()
	}
	type line struct {
		where, kind string
		device      int32
	}
	index := map[line][]Values{} // one for each profile
	for i, p := range profiles {
		for _, r := range p.Rows {
			k := line{r.Stack.Where(), r.Kind, r.Device}
			if index[k] == nil {
				index[k] = make([]Values, len(profiles))
			}
			index[k][i] = index[k][i].Add(r.Values)
		}
	}
	var leaks []Leak
	for l, values := range index {
		inuse := make([]float64, len(profiles))
		for i, v := range values {
			inuse[i] = float64(v.InuseBytes)
		}
		half := len(profiles) / 2
		slope := theilSen(hours, inuse)
		trend := mannKendall(inuse)
		if slope <= 0 || trend < confidence || theilSen(hours[half:], inuse[half:]) < steady*slope {
			continue
		}
		first, middle, last := values[0], values[half], values[len(profiles)-1]
		early := float64(middle.AllocBytes-first.AllocBytes) / hours[half]
		late := float64(last.AllocBytes-middle.AllocBytes) / (hours[len(hours)-1] - hours[half])
		leaks = append(leaks, Leak{
			Line: l.where, Kind: l.kind, Device: l.device,
			BytesPerHour: slope, Confidence: trend,
			Grew: last.InuseBytes - first.InuseBytes, Objects: last.InuseObjects - first.InuseObjects,
			MoreWork: late > 1.25*early,
		})
	}
	slices.SortFunc(leaks, func(a, b Leak) int {
		return cmp.Or(
			-cmp.Compare(a.BytesPerHour, b.BytesPerHour),
			cmp.Compare(a.Line, b.Line),
			cmp.Compare(a.Kind, b.Kind),
			cmp.Compare(a.Device, b.Device),
		)
	})
	return leaks, nil
}

// theilSen is the median of the slopes of all pairs; 0 where there is none.
func theilSen(x, y []float64) float64 {
	var slopes []float64
	for j := range x {
		for i := range j {
			slopes = append(slopes, (y[j]-y[i])/(x[j]-x[i]))
		}
	}
	if len(slopes) == 0 {
		return 0
	}
	slices.Sort(slopes)
	n := len(slopes)
	return (slopes[(n-1)/2] + slopes[n/2]) / 2
}

// mannKendall is 1 − p of the one-sided test for growth, by the normal approximation with
// the correction for ties (Kendall, Rank Correlation Methods, 1975, chapter 4).
func mannKendall(y []float64) float64 {
	s, ties := 0, map[float64]int{}
	for j := range y {
		ties[y[j]]++
		for i := range j {
			s += cmp.Compare(y[j], y[i])
		}
	}
	term := func(n int) float64 { return float64(n * (n - 1) * (2*n + 5)) }
	variance := term(len(y))
	for _, n := range ties {
		variance -= term(n)
	}
	if s <= 0 || variance <= 0 {
		return 0
	}
	return math.Erfc(-float64(s-1)/math.Sqrt(variance/18)/math.Sqrt2) / 2
}
