// SPDX-License-Identifier: Apache-2.0

// Package throttle bounds what others cause: warnings that recur, work, and entries of a table that they share.
package throttle

import (
	"fmt"
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

// Warn passes a message to warn, if it may be written now, with how many were suppressed since the last one. warn may be nil.
func (t *Throttle) Warn(warn func(string), format string, args ...any) {
	suppressed, ok := t.Pass(time.Now())
	if !ok || warn == nil {
		return
	}
	text := fmt.Sprintf(format, args...)
	if suppressed > 0 {
		text += fmt.Sprintf(" (%d more in the last minute)", suppressed)
	}
	warn(text)
}
