// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

const (
	// answerTimeout is how long an answer of the driver is waited for: it takes milliseconds per GPU.
	answerTimeout = 2 * time.Second
	// openTimeout is the same for opening the library, which wakes GPUs without nvidia-persistenced, in one or two seconds each.
	openTimeout = 30 * time.Second
	// stale is the age at which an answer is used no more. It exceeds usual intervals of scrapes.
	stale = 2 * time.Minute
)

// errSilent means that the driver does not answer.
var errSilent = errors.New("the driver does not answer")

// query asks the driver in the background, one call at a time. A call of NVML blocks for ever where
// the driver has locked up, and neither a scrape, the encoder of profiles nor the end of a run may
// wait for that. It is safe for concurrent use.
type query[T any] struct {
	ask func() T
	// info is called once when answers become stale, with what is missing then, and when there are
	// new ones. May be nil.
	info    func(string)
	missing string

	mu     sync.Mutex
	done   chan struct{} // closed at the end of the call in progress; nil: there is none
	began  time.Time     // of the last call
	latest T
	at     time.Time // when the call began that latest is from
	isLate bool      // info was called
}

// get returns the answer, and when the call for it began. The driver's last answer counts while there is
// none in time; ok is false where it is stale.
func (q *query[T]) get() (answer T, at time.Time, ok bool) {
	q.mu.Lock()
	if q.done == nil {
		q.done, q.began = make(chan struct{}), time.Now()
		go q.call(q.done, q.began)
	}
	done, wait := q.done, time.Until(q.began.Add(answerTimeout))
	q.mu.Unlock()
	select {
	case <-done:
	case <-time.After(wait): // at once, if others have waited
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	// Before the first answer, its age is that of the question.
	since := q.at
	if since.IsZero() {
		since = q.began
	}
	age := time.Since(since)
	if isLate := age >= stale; isLate != q.isLate {
		q.isLate = isLate
		q.say(age)
	}
	if q.at.IsZero() || q.isLate {
		return answer, time.Time{}, false
	}
	return q.latest, q.at, true
}

func (q *query[T]) call(done chan struct{}, began time.Time) {
	answer := q.ask()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.latest, q.at, q.done = answer, began, nil
	close(done)
}

func (q *query[T]) say(age time.Duration) {
	switch {
	case q.info == nil:
	case q.isLate:
		q.info(fmt.Sprintf("the GPUs' driver has not answered for %s: %s", age.Round(time.Second), q.missing))
	default:
		q.info("the GPUs' driver answers again")
	}
}

// close calls end when no call is in progress, and waits for that for a short time only.
func (q *query[T]) close(end func()) {
	q.mu.Lock()
	done := q.done
	q.mu.Unlock()
	within(answerTimeout, func() {
		if done != nil {
			<-done
		}
		end()
	})
}

// within calls f in the background and reports whether it ended within the limit.
func within(limit time.Duration, f func()) bool {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
		return true
	case <-time.After(limit):
		return false
	}
}

// openInTime opens a library. One that opens too late is closed again.
func openInTime(open func() (Library, error)) (Library, error) {
	type result struct {
		library Library
		err     error
	}
	opened, late := make(chan result), make(chan struct{})
	go func() {
		var r result
		r.library, r.err = open()
		select {
		case opened <- r:
		case <-late:
			if r.err == nil {
				r.library.Close()
			}
		}
	}()
	select {
	case r := <-opened:
		return r.library, r.err
	case <-time.After(openTimeout):
		close(late)
		return nil, errSilent
	}
}
