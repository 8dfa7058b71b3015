// SPDX-License-Identifier: Apache-2.0

// Package queue sends items to a server that may be slow, unreachable or refuse them, and
// never blocks the producer. It is bounded by bytes; when it is full the oldest item is
// dropped, because the newest is the most useful. Losses are counted by reason. An item
// is sent until the server has accepted or refused it, so it may be sent twice if an
// answer is lost.
package queue

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/internal/throttle"
)

// RejectedError is an answer that will be the same next time: the item is dropped.
type RejectedError struct{ Err error }

func (e *RejectedError) Error() string { return e.Err.Error() }
func (e *RejectedError) Unwrap() error { return e.Err }

// LaterError is an answer that names a time for the next attempt.
type LaterError struct {
	Err   error
	After time.Duration
}

func (e *LaterError) Error() string { return e.Err.Error() }
func (e *LaterError) Unwrap() error { return e.Err }

// Config of a queue of items of type T.
type Config[T any] struct {
	// Name is the receiver's name in warnings, such as "Pyroscope".
	Name string
	// Send sends one item. Errors other than RejectedError are retried.
	Send func(context.Context, T) error
	// MaxBytes bounds the waiting items, including the one being sent.
	MaxBytes int64
	// Timeout of one Send; default 10 s. A hanging server counts as a failure.
	Timeout time.Duration
	// MinBackoff doubles with each failure up to MaxBackoff, and is spread by
	// half in either direction, so that many nodes do not return at the same time.
	// Defaults 500 ms and 30 s.
	MinBackoff, MaxBackoff time.Duration
	// Warn receives failures, at most once a minute.
	Warn func(format string, args ...any)
}

// Stats are counters since New, and the items that wait now.
type Stats struct {
	QueuedItems, QueuedBytes int64
	// CapacityBytes is the size at which dropping begins.
	CapacityBytes        int64
	SentItems, SentBytes int64
	// Failures are attempts that failed and were, or would be, made again.
	Failures int64
	// Lost by reason: the queue was full, the server refused the item itself, or
	// the run ended first.
	LostFull, LostRejected, LostAtEnd int64
	LostBytes                         int64
}

// Lost is the number of items that did not arrive.
func (s Stats) Lost() int64 { return s.LostFull + s.LostRejected + s.LostAtEnd }

type entry[T any] struct {
	item  T
	bytes int64
}

// Queue is safe for concurrent use. It ends with Close.
type Queue[T any] struct {
	cfg    Config[T]
	cancel context.CancelFunc // of the item being sent
	ended  chan struct{}
	wake   chan struct{} // an item was added, or closing began
	warned throttle.Throttle
	// hurried: closing has cut a wait short. Owned by run.
	hurried bool

	mu      sync.Mutex
	waiting []entry[T]
	sending bool // waiting[0] is being sent and must stay
	closing bool
	stats   Stats
}

// New starts sending.
func New[T any](cfg Config[T]) *Queue[T] {
	set := func(d *time.Duration, value time.Duration) {
		if *d == 0 {
			*d = value
		}
	}
	set(&cfg.Timeout, 10*time.Second)
	set(&cfg.MinBackoff, 500*time.Millisecond)
	set(&cfg.MaxBackoff, 30*time.Second)
	ctx, cancel := context.WithCancel(context.Background())
	q := &Queue[T]{cfg: cfg, cancel: cancel, ended: make(chan struct{}), wake: make(chan struct{}, 1)}
	q.stats.CapacityBytes = cfg.MaxBytes
	go q.run(ctx)
	return q
}

// Put never waits. After Close it loses the item.
func (q *Queue[T]) Put(item T, bytes int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closing {
		q.stats.LostAtEnd++
		q.stats.LostBytes += bytes
		return
	}
	keep := 0
	if q.sending {
		keep = 1
	}
	for q.stats.QueuedBytes+bytes > q.cfg.MaxBytes && len(q.waiting) > keep {
		q.stats.LostFull++
		q.stats.LostBytes += q.waiting[keep].bytes
		q.drop(keep)
	}
	if q.stats.QueuedBytes+bytes > q.cfg.MaxBytes {
		q.stats.LostFull++
		q.stats.LostBytes += bytes
	} else {
		q.waiting = append(q.waiting, entry[T]{item, bytes})
		q.stats.QueuedItems++
		q.stats.QueuedBytes += bytes
	}
	q.signal()
}

// drop removes one entry; mu is held.
func (q *Queue[T]) drop(i int) {
	q.stats.QueuedItems--
	q.stats.QueuedBytes -= q.waiting[i].bytes
	copy(q.waiting[i:], q.waiting[i+1:])
	q.waiting[len(q.waiting)-1] = entry[T]{} // release it
	q.waiting = q.waiting[:len(q.waiting)-1]
}

func (q *Queue[T]) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// Stats returns the current counters.
func (q *Queue[T]) Stats() Stats {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.stats
}

// Close tries to send the waiting items until ctx ends, and loses the rest. It returns
// when the goroutine has ended.
func (q *Queue[T]) Close(ctx context.Context) Stats {
	q.mu.Lock()
	q.closing = true
	q.mu.Unlock()
	q.signal()
	select {
	case <-q.ended:
	case <-ctx.Done():
		q.cancel()
		<-q.ended
	}
	q.cancel()
	return q.Stats()
}

func (q *Queue[T]) run(ctx context.Context) {
	defer close(q.ended)
	failures := 0
	for ctx.Err() == nil {
		e, ok, closing := q.first()
		if !ok {
			if closing {
				break
			}
			select {
			case <-q.wake:
			case <-ctx.Done():
			}
			continue
		}
		err := q.send(ctx, e.item)
		again := q.sent(e, err)
		if !again {
			failures = 0
			continue
		}
		failures++
		if q.wait(ctx, q.backoff(failures, err)) {
			failures = 0
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, e := range q.waiting {
		q.stats.LostAtEnd++
		q.stats.LostBytes += e.bytes
	}
	q.waiting, q.stats.QueuedItems, q.stats.QueuedBytes = nil, 0, 0
}

func (q *Queue[T]) first() (e entry[T], ok, closing bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == 0 {
		return e, false, q.closing
	}
	q.sending = true
	return q.waiting[0], true, q.closing
}

func (q *Queue[T]) send(ctx context.Context, item T) (err error) {
	ctx, cancel := context.WithTimeout(ctx, q.cfg.Timeout)
	defer cancel()
	return q.cfg.Send(ctx, item)
}

// sent counts the outcome and reports whether to retry.
func (q *Queue[T]) sent(e entry[T], err error) (again bool) {
	q.mu.Lock()
	q.sending = false
	var rejected *RejectedError
	isRejected := errors.As(err, &rejected)
	switch {
	case err == nil:
		q.stats.SentItems++
		q.stats.SentBytes += e.bytes
	case isRejected:
		q.stats.LostRejected++
		q.stats.LostBytes += e.bytes
	default:
		q.stats.Failures++
		again = true
	}
	if !again {
		q.drop(0)
	}
	stats := q.stats
	q.mu.Unlock()

	// A log that blocks must not block Put.
	switch {
	case isRejected:
		q.warn(stats, "%s rejected data, which is dropped: %v", q.cfg.Name, err)
	case err != nil:
		q.warn(stats, "%s did not accept data, which is kept and retried: %v", q.cfg.Name, err)
	}
	return again
}

func (q *Queue[T]) warn(stats Stats, format string, args ...any) {
	if q.cfg.Warn == nil {
		return
	}
	if suppressed, ok := q.warned.Pass(time.Now()); ok {
		q.cfg.Warn("%s (waiting: %d, lost so far: %d, failures not shown: %d)",
			fmt.Sprintf(format, args...), stats.QueuedItems, stats.Lost(), suppressed)
	}
}

// backoff after the n-th failure in a row.
func (q *Queue[T]) backoff(n int, err error) time.Duration {
	d := q.cfg.MaxBackoff
	if n < 30 { // no overflow
		d = min(d, q.cfg.MinBackoff<<(n-1))
	}
	d = d/2 + rand.N(d) // of mean d
	var later *LaterError
	if errors.As(err, &later) {
		// If a server asks for an hour, the wait is ten times the longest backoff.
		d = max(d, min(later.After, 10*q.cfg.MaxBackoff))
	}
	return d
}

// wait is cut short once when closing begins, and then reports that: remaining items are
// sent at once, and retried in short intervals as long as Close allows.
func (q *Queue[T]) wait(ctx context.Context, d time.Duration) (hurry bool) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		if !q.hurried && q.isClosing() {
			q.hurried = true
			return true
		}
		select {
		case <-timer.C:
			return false
		case <-ctx.Done():
			return false
		case <-q.wake: // an item does not cut it short
		}
	}
}

func (q *Queue[T]) isClosing() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.closing
}
