// SPDX-License-Identifier: Apache-2.0

// Package gpuclock takes times of kernels from CUPTI's clock to the kernel's boot time.
//
// CUPTI has CLOCK_REALTIME by default, but another library in the process may have given
// it another clock, and wall time may be set meanwhile. So it is checked: a kernel cannot
// begin before its launch was called, nor end after it was reported. What lies between is
// an interval for what has to be added, and the more launches, the narrower: a GPU that
// has nothing to do begins some microseconds after the call.
package gpuclock

import "math"

// Seen is the evidence of when a kernel ran.
type Seen struct {
	Start, End uint64 // of CUPTI's clock, ns
	Launch     uint64 // when its launch was called, boot ns; 0: not seen
	Told       uint64 // when it was reported, boot ns
}

// Source says which clock it is.
type Source string

const (
	Realtime Source = "CLOCK_REALTIME"
	Boottime Source = "CLOCK_BOOTTIME"
	// Unknown: kernels are as early as their launches allow.
	Unknown Source = "a clock that is not known"
)

// slackNS is by how much a clock may be beside the interval and still be it: wall time is
// slewed, and converted by the offset of a moment that is seconds later.
const slackNS = 10_000_000

// longestNS is an upper bound of the delay of reports.
const longestNS = 3600_000_000_000

// Clock is that of one process. The zero value is ready to use.
type Clock struct {
	low, high  int64 // the interval of the lot before
	hasBefore  bool
	isLaunched bool // of a launch there was one
}

// Offset is what to add to times of a lot, which was reported within seconds. wall is wall
// time less boot time now, in ns.
func (c *Clock) Offset(lot []Seen, wall int64) (int64, Source) {
	low, high, isLaunched := int64(math.MinInt64), int64(math.MaxInt64), c.isLaunched
	for _, s := range lot {
		if s.Launch != 0 {
			isLaunched = true
			low = max(low, int64(s.Launch)-int64(s.Start))
		}
		low = max(low, int64(s.Told)-int64(s.End)-longestNS)
		high = min(high, int64(s.Told)-int64(s.End))
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
