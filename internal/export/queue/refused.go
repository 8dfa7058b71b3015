// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"slices"
	"time"
)

const (
	// maxAnswers is how many answers in a row refuse an item before the next one is sent: 15 s
	// with the default backoff. It is one while others have been refused already.
	maxAnswers = 5
	// maxTurns is how often a refused item is sent again while the server accepts others. The
	// pauses double from a minute, with the default MaxBackoff: about an hour in all, which is
	// the age of data that Pyroscope still accepts.
	maxTurns = 6
)

// entry is an item in the queue, or one that is being sent.
type entry[T any] struct {
	item  T
	bytes int64
	// isPart: it cannot be split.
	isPart bool
	// failed counts the answers that have refused it.
	failed int
	// Of a refused one: when it is sent again, how often it was sent while the server
	// accepted others, and how many others the server had accepted by then.
	due   time.Time
	turns int
	sent  int64
}

// next takes the next item out of its list: those that wait are first, and then a refused one
// that is due. If there is none, after is the time until one is due, 0 if there is none at all.
// Ended: the queue is empty and closing.
func (q *Queue[T]) next() (e *entry[T], after time.Duration, ended bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) > 0 {
		e = q.waiting[0]
		q.waiting = slices.Delete(q.waiting, 0, 1)
		return e, 0, false
	}
	if len(q.refused) == 0 {
		return nil, 0, q.closing
	}
	first := 0
	for i, e := range q.refused {
		if e.due.Before(q.refused[first].due) {
			first = i
		}
	}
	if after = time.Until(q.refused[first].due); after > 0 && !q.closing {
		return nil, after, false
	}
	e = q.refused[first]
	q.refused = slices.Delete(q.refused, first, first+1)
	return e, 0, false
}

// back returns an item that was not answered to its list; mu is held.
func (q *Queue[T]) back(e *entry[T]) {
	if e.due.IsZero() {
		q.waiting = slices.Insert(q.waiting, 0, e)
	} else {
		q.refused = append(q.refused, e)
	}
}

// again returns an item that an answer has refused for now to the queue, behind the others
// once that has happened often enough. It reports whether the item is kept; mu is held.
func (q *Queue[T]) again(e *entry[T], isOwn bool) (kept bool) {
	if q.split(e) {
		return true
	}
	e.failed++
	if e.due.IsZero() && e.failed < maxAnswers && len(q.refused) == 0 && !isOwn {
		q.back(e)
		return true
	}
	// A server that accepts nothing may be overloaded: that is no turn of this item.
	if !e.due.IsZero() && q.stats.SentItems > e.sent {
		if e.turns++; e.turns == maxTurns {
			q.lose(e)
			return false
		}
	}
	e.sent = q.stats.SentItems
	e.due = time.Now().Add(spread(q.cfg.MaxBackoff << (e.turns + 1)))
	q.refused = append(q.refused, e)
	return true
}

// split replaces an item by its parts; mu is held.
func (q *Queue[T]) split(e *entry[T]) bool {
	if q.cfg.Split == nil || e.isPart {
		return false
	}
	e.isPart = true
	parts, bytes := q.cfg.Split(e.item)
	if len(parts) < 2 {
		return false
	}
	q.leave(e)
	all := make([]*entry[T], len(parts))
	for i := range parts {
		all[i] = &entry[T]{item: parts[i], bytes: bytes[i], isPart: true}
		q.stats.QueuedItems++
		q.stats.QueuedBytes += bytes[i]
	}
	q.waiting = slices.Insert(q.waiting, 0, all...)
	return true
}

// lose drops an item that the server does not accept; mu is held.
func (q *Queue[T]) lose(e *entry[T]) {
	q.stats.LostRejected++
	q.stats.LostBytes += e.bytes
	q.leave(e)
}
