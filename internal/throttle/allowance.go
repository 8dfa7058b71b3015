// SPDX-License-Identifier: Apache-2.0

package throttle

import (
	"maps"
	"runtime"
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

// Allowances are those of many, all with the same bounds. It is for one goroutine at a time.
type Allowances[K comparable] struct {
	Burst time.Duration
	Share int

	of map[K]*Allowance // of those that have not paid everything back, most of all
}

// Take notes that d was worked for one of them.
func (a *Allowances[K]) Take(of K, d time.Duration, now time.Time) {
	mine := a.of[of]
	if mine == nil {
		if a.of == nil {
			a.of = map[K]*Allowance{}
		}
		mine = &Allowance{Burst: a.Burst, Share: a.Share}
		a.of[of] = mine
	}
	mine.Take(d, now)
}

// Pause is how long not to work for one of them.
func (a *Allowances[K]) Pause(of K, now time.Time) time.Duration {
	if mine := a.of[of]; mine != nil {
		return mine.Pause(now)
	}
	return 0
}

// ForgetPaid drops those that owe nothing.
func (a *Allowances[K]) ForgetPaid(now time.Time) {
	maps.DeleteFunc(a.of, func(_ K, mine *Allowance) bool { return mine.IsPaid(now) })
}

// Clear forgives everything.
func (a *Allowances[K]) Clear() { clear(a.of) }

// Len is how many owe something, at most.
func (a *Allowances[K]) Len() int { return len(a.of) }

// Timed is the processor time that f takes, on one thread.
func Timed(f func()) time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	began := ThreadTime()
	f()
	return ThreadTime() - began
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
