// SPDX-License-Identifier: Apache-2.0

package throttle

import (
	"time"

	"golang.org/x/sys/unix"
)

// Allowance bounds the time of work that others cause: Burst without a pause, and in the long run
// one part in Share of all time. It is for one goroutine at a time.
type Allowance struct {
	Burst time.Duration
	Share int

	debt time.Duration // worked, less what has been paid back by waiting
	at   time.Time
}

// Take notes that d was worked up to now.
func (a *Allowance) Take(d time.Duration, now time.Time) {
	a.debt = a.owed(now) + d
	a.at = now
}

// Pause is how long not to work from now on.
func (a *Allowance) Pause(now time.Time) time.Duration {
	return max(0, a.owed(now)-a.Burst) * time.Duration(a.Share)
}

// IsPaid reports whether all work was paid back: it then equals an Allowance that was never used.
func (a *Allowance) IsPaid(now time.Time) bool { return a.owed(now) == 0 }

func (a *Allowance) owed(now time.Time) time.Duration {
	if a.at.IsZero() {
		return 0
	}
	return max(0, a.debt-now.Sub(a.at)/time.Duration(a.Share))
}

// ThreadTime is the processor time of this thread, to which the goroutine must be locked: time by the clock
// would count the work of others. 0 where the kernel does not count it.
func ThreadTime() time.Duration {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts) != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}
