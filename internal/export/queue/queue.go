// SPDX-License-Identifier: Apache-2.0

// Package queue sends items to a server that may be slow, unreachable or refuse them, and
// never blocks the producer. It is bounded by bytes; when it is full the oldest item is
// dropped, because the newest is the most useful. Losses are counted by reason. An item
// is sent until the server has accepted or refused it, so it may be sent twice if an
// answer is lost.
//
// While a server is away all items wait, in order. If it answers, and refuses some items but
// accepts others, the refused ones do not stop the others: see refused.go.
package queue

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/internal/throttle"
)

// Config of a queue of items of type T.
type Config[T any] struct {
	// Name is the receiver's name in warnings, such as "Pyroscope".
	Name string
	// Send sends one item. Errors other than RejectedError are retried, those that are
	// no AnsweredError until the item is accepted or the queue is full.
	Send func(context.Context, T) error
	// Split returns the parts of an item that can be sent on their own, with their sizes.
	// An item that the server has refused to take now is replaced by them, so that only
	// the refused parts are repeated. Nil, or fewer than two parts: it stays whole.
	Split func(T) (parts []T, bytes []int64)
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
	waiting []*entry[T]
	refused []*entry[T] // behind those that wait; in the order in which they were refused
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
	for q.stats.QueuedBytes+bytes > q.cfg.MaxBytes && len(q.refused)+len(q.waiting) > 0 {
		from := &q.waiting
		if len(q.refused) > 0 {
			from = &q.refused // they would be lost in the end, and must not take others with them
		}
		e := (*from)[0]
		*from = slices.Delete(*from, 0, 1)
		q.stats.LostFull++
		q.stats.LostBytes += e.bytes
		q.leave(e)
	}
	if q.stats.QueuedBytes+bytes > q.cfg.MaxBytes {
		q.stats.LostFull++
		q.stats.LostBytes += bytes
	} else {
		q.waiting = append(q.waiting, &entry[T]{item: item, bytes: bytes})
		q.stats.QueuedItems++
		q.stats.QueuedBytes += bytes
	}
	q.signal()
}

// leave counts an item that is not in the queue any more; mu is held.
func (q *Queue[T]) leave(e *entry[T]) {
	q.stats.QueuedItems--
	q.stats.QueuedBytes -= e.bytes
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
		e, after, ended := q.next()
		if ended {
			break
		}
		if e == nil {
			q.idle(ctx, after)
			continue
		}
		err := q.send(ctx, e.item)
		if q.sent(e, err) {
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
	for _, e := range slices.Concat(q.refused, q.waiting) {
		q.stats.LostAtEnd++
		q.stats.LostBytes += e.bytes
	}
	q.refused, q.waiting, q.stats.QueuedItems, q.stats.QueuedBytes = nil, nil, 0, 0
}

// idle waits for an item, or until a refused one is due.
func (q *Queue[T]) idle(ctx context.Context, after time.Duration) {
	var due <-chan time.Time // never
	if after > 0 {
		timer := time.NewTimer(after)
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-q.wake:
	case <-due:
	case <-ctx.Done():
	}
}

func (q *Queue[T]) send(ctx context.Context, item T) (err error) {
	ctx, cancel := context.WithTimeout(ctx, q.cfg.Timeout)
	defer cancel()
	return q.cfg.Send(ctx, item)
}

// sent counts the outcome and reports whether the next item can be sent at once. An item that
// was not accepted is in the queue again, or dropped.
func (q *Queue[T]) sent(e *entry[T], err error) (proceed bool) {
	q.mu.Lock()
	var rejected *RejectedError
	var answered *AnsweredError
	isRejected := errors.As(err, &rejected)
	switch {
	case err == nil:
		q.stats.SentItems++
		q.stats.SentBytes += e.bytes
		q.leave(e)
		proceed = true
	case isRejected:
		q.lose(e)
		proceed = true
	case errors.As(err, &answered):
		q.stats.Failures++
		isRejected = !q.again(e, answered.IsOwn)
		proceed = isRejected || answered.IsOwn && !q.closing
	default:
		q.stats.Failures++
		q.back(e)
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
	return proceed
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
	d = spread(d)
	var later *LaterError
	if errors.As(err, &later) {
		// If a server asks for an hour, the wait is ten times the longest backoff.
		d = max(d, min(later.After, 10*q.cfg.MaxBackoff))
	}
	return d
}

// spread is a random duration of mean d.
func spread(d time.Duration) time.Duration { return d/2 + rand.N(d) }

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
