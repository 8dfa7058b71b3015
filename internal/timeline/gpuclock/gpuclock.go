// SPDX-License-Identifier: Apache-2.0

// Package gpuclock converts times of kernels from CUPTI's clock to boot time.
//
// CUPTI uses CLOCK_REALTIME by default, but another library in the process may have set
// another clock, and wall time may be changed meanwhile. So the clock is verified: a
// kernel cannot begin before its launch was called, nor end after it was reported. This
// bounds the offset by an interval, which gets narrower with more launches: an idle GPU
// begins a few microseconds after the call.
package gpuclock

import "math"

// Seen is the evidence of when a kernel ran.
type Seen struct {
	Start, End uint64 // of CUPTI's clock, ns
	Launch     uint64 // when its launch was called, boot ns; 0: not seen
	Reported   uint64 // when it was reported, boot ns
}

// Source is the kind of clock.
type Source string

const (
	Realtime Source = "CLOCK_REALTIME"
	Boottime Source = "CLOCK_BOOTTIME"
	// Unknown means that kernels are as early as their launches allow.
	Unknown Source = "an unknown clock"
)

// slackNS is by how much a clock may be outside the interval and still match: wall time
// is slewed, and converted by an offset taken seconds later.
const slackNS = 10_000_000

// longestNS is an upper bound of the delay of reports.
const longestNS = 3600_000_000_000

// Clock is that of one process. The zero value is ready to use.
type Clock struct {
	low, high  int64 // the interval of the previous batch
	hasBefore  bool
	isLaunched bool // a launch has set it
}

// Offset returns the offset to add to times of a batch, which was reported within seconds.
// wall is wall time less boot time now, in ns.
func (c *Clock) Offset(lot []Seen, wall int64) (int64, Source) {
	low, high, isLaunched := int64(math.MinInt64), int64(math.MaxInt64), c.isLaunched
	for _, s := range lot {
		if s.Launch != 0 {
			isLaunched = true
			low = max(low, int64(s.Launch)-int64(s.Start))
		}
		low = max(low, int64(s.Reported)-int64(s.End)-longestNS)
		high = min(high, int64(s.Reported)-int64(s.End))
	}
	if c.hasBefore && max(low, c.low) <= min(high, c.high) { // else the clock was set
		low, high = max(low, c.low), min(high, c.high)
	}
	c.low, c.high, c.hasBefore, c.isLaunched = low, high, true, isLaunched
	for _, candidate := range []struct {
		offset int64
		source Source
	}{{-wall, Realtime}, {0, Boottime}} {
		if candidate.offset >= low-slackNS && candidate.offset <= high+slackNS {
			return max(min(candidate.offset, high), low), candidate.source
		}
	}
	if !isLaunched {
		return high, Unknown
	}
	return low, Unknown
}
