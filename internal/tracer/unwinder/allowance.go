// SPDX-License-Identifier: Apache-2.0

package unwinder

import (
	"context"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// burst is the processor time that is used without a pause: more than the libraries of PyTorch take.
	burst = 2 * time.Second
	// share of the time that may be worked in the long run: 1 of so many.
	share = 10
)

// allowance bounds the processor time for rules, whatever the files and the stacks of the observed
// processes are. Stacks that come in a pause are cut, with a frame that says why.
type allowance struct {
	debt time.Duration // worked, less what has been paid back by waiting
	at   time.Time
}

// take notes that d was worked up to now.
func (a *allowance) take(d time.Duration, now time.Time) {
	if !a.at.IsZero() {
		a.debt = max(0, a.debt-now.Sub(a.at)/share)
	}
	a.debt += d
	a.at = now
}

// pause is how long not to work now.
func (a *allowance) pause() time.Duration { return max(0, a.debt-burst) * share }

// threadTime is the processor time of this thread.
func threadTime() time.Duration {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts) != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}

// wait is false if the context ended first.
func wait(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
