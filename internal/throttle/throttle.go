// SPDX-License-Identifier: Apache-2.0

// Package throttle bounds what others cause: warnings that recur, work, and entries of a table that they share.
package throttle

import (
	"sync"
	"time"
)

// Throttle lets one message through per minute and counts the others. The zero
// value is ready; it is safe for concurrent use.
type Throttle struct {
	mu         sync.Mutex
	last       time.Time
	suppressed int
}

// Pass reports whether a message may be written now, and how many were suppressed since
// the last one.
func (t *Throttle) Pass(now time.Time) (suppressed int, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.last.IsZero() && now.Sub(t.last) < time.Minute {
		t.suppressed++
		return 0, false
	}
	suppressed, t.suppressed, t.last = t.suppressed, 0, now
	return suppressed, true
}
