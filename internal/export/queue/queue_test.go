// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

var errAway = errors.New("connection refused")

// server answers with the result of answer, and records the items it has accepted.
type server struct {
	answer func(at time.Duration, item int) error
	began  time.Time
	got    []int
	tries  []time.Duration
}

func (s *server) send(ctx context.Context, item int) error {
	at := time.Since(s.began)
	s.tries = append(s.tries, at)
	if s.answer != nil {
		if err := s.answer(at, item); err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	s.got = append(s.got, item)
	return nil
}

// within runs test with synthetic time: hours of outage take no time.
func within(t *testing.T, s *server, cfg Config[int], test func(t *testing.T, q *Queue[int])) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s.began = time.Now()
		cfg.Name = "the server"
		cfg.Send = s.send
		q := New(cfg)
		defer q.Close(canceled())
		test(t, q)
	})
}

func canceled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

func closeWithin(q *Queue[int], d time.Duration) Stats {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	return q.Close(ctx)
}

func count(from, to int) (all []int) {
	for i := from; i <= to; i++ {
		all = append(all, i)
	}
	return all
}

func TestItemsArriveInOrder(t *testing.T) {
	s := &server{}
	within(t, s, Config[int]{MaxBytes: 1000}, func(t *testing.T, q *Queue[int]) {
		for i := range 10 {
			q.Put(i, 10)
		}
		stats := closeWithin(q, time.Second)
		require.Equal(t, count(0, 9), s.got)
		require.Equal(t, Stats{CapacityBytes: 1000, SentItems: 10, SentBytes: 100}, stats)
	})
}

// Two minutes without the server, in several ways: nothing is lost within the limit.
func TestOutageWithinTheLimitLosesNothing(t *testing.T) {
	answers := map[string]error{
		"refused": errAway, "asks to wait": &LaterError{errAway, 3 * time.Second}, "hangs": context.DeadlineExceeded,
	}
	for name, answer := range answers {
		t.Run(name, func(t *testing.T) {
			s := &server{}
			s.answer = func(at time.Duration, _ int) error {
				if at < 30*time.Second || at > 150*time.Second {
					return nil
				}
				if name == "hangs" {
					time.Sleep(10 * time.Second)
				}
				return answer
			}
			within(t, s, Config[int]{MaxBytes: 1000}, func(t *testing.T, q *Queue[int]) {
				var most int64
				for i := range 30 {
					began := time.Now()
					q.Put(i, 10)
					require.Zero(t, time.Since(began), "Put never waits")
					most = max(most, q.Stats().QueuedBytes)
					time.Sleep(10 * time.Second)
				}
				stats := closeWithin(q, time.Second)
				require.Equal(t, count(0, 29), s.got)
				require.Zero(t, stats.Lost())
				require.Positive(t, stats.Failures)
				require.Greater(t, most, int64(100))
			})
		})
	}
}

func TestALongOutageLosesTheOldestAndCountsThem(t *testing.T) {
	s := &server{answer: func(at time.Duration, _ int) error {
		if at < time.Hour {
			return errAway
		}
		return nil
	}}
	within(t, s, Config[int]{MaxBytes: 100}, func(t *testing.T, q *Queue[int]) {
		for i := range 1000 {
			q.Put(i, 10)
			require.LessOrEqual(t, q.Stats().QueuedBytes, int64(100))
			q.mu.Lock()
			require.LessOrEqual(t, cap(q.waiting), 32, "memory is bounded as well")
			q.mu.Unlock()
			time.Sleep(time.Second)
		}
		time.Sleep(time.Hour)
		stats := closeWithin(q, time.Second)
		require.Len(t, s.got, 10)
		require.Contains(t, s.got, 999)
		require.EqualValues(t, 990, stats.LostFull)
		require.EqualValues(t, 9900, stats.LostBytes)
		require.EqualValues(t, 10, stats.SentItems)
	})
}

func TestOnlyTheItemLargerThanTheQueueIsLost(t *testing.T) {
	s := &server{answer: func(time.Duration, int) error { return errAway }}
	within(t, s, Config[int]{MaxBytes: 100}, func(t *testing.T, q *Queue[int]) {
		q.Put(1, 200)
		q.Put(2, 50)
		stats := q.Stats()
		require.EqualValues(t, 1, stats.LostFull)
		require.EqualValues(t, 1, stats.QueuedItems)
	})
}

func TestRefusedItemsAreDroppedAndDoNotBlockOthers(t *testing.T) {
	s := &server{answer: func(_ time.Duration, item int) error {
		if item == 1 {
			return fmt.Errorf("push: %w", &RejectedError{errors.New("invalid profile")})
		}
		return nil
	}}
	within(t, s, Config[int]{MaxBytes: 100}, func(t *testing.T, q *Queue[int]) {
		for i := range 3 {
			q.Put(i, 10)
		}
		stats := closeWithin(q, time.Second)
		require.Equal(t, []int{0, 2}, s.got)
		require.Equal(t, Stats{CapacityBytes: 100, SentItems: 2, SentBytes: 20, LostRejected: 1, LostBytes: 10}, stats)
	})
}

func TestBackoffGrowsWithJitterAndIsBounded(t *testing.T) {
	s := &server{answer: func(time.Duration, int) error { return errAway }}
	within(t, s, Config[int]{MaxBytes: 100}, func(t *testing.T, q *Queue[int]) {
		q.Put(1, 10)
		time.Sleep(20 * time.Minute)
		synctest.Wait()
		var waits []time.Duration
		for i := range len(s.tries) - 1 {
			waits = append(waits, s.tries[i+1]-s.tries[i])
		}
		different := map[time.Duration]bool{}
		for i, d := range waits {
			mean := min(30*time.Second, 500*time.Millisecond<<min(i, 20))
			require.GreaterOrEqual(t, d, mean/2, i)
			require.LessOrEqual(t, d, mean*3/2, i)
			different[d] = true
		}
		require.Greater(t, len(waits), 25)
		require.Equal(t, len(waits), len(different), "no two waits are the same")
	})
}

func TestRetryAfterIsHonoured(t *testing.T) {
	for wait, want := range map[time.Duration]time.Duration{time.Minute: time.Minute, 24 * time.Hour: 5 * time.Minute} {
		s := &server{}
		s.answer = func(time.Duration, int) error {
			if len(s.tries) > 1 {
				return nil
			}
			return fmt.Errorf("push: %w", &LaterError{errAway, wait})
		}
		within(t, s, Config[int]{MaxBytes: 100}, func(t *testing.T, q *Queue[int]) {
			q.Put(1, 10)
			time.Sleep(time.Hour)
			synctest.Wait()
			require.Equal(t, []time.Duration{0, want}, s.tries)
		})
	}
}

func TestCloseTriesAtOnceAndEndsInTime(t *testing.T) {
	s := &server{answer: func(at time.Duration, _ int) error {
		if at < 100*time.Second {
			return errAway
		}
		return nil
	}}
	within(t, s, Config[int]{MaxBytes: 100}, func(t *testing.T, q *Queue[int]) {
		q.Put(1, 10)
		time.Sleep(101 * time.Second) // in the middle of a long wait
		q.Put(2, 10)
		began := time.Now()
		stats := closeWithin(q, 5*time.Second)
		require.Zero(t, time.Since(began))
		require.EqualValues(t, 2, stats.SentItems)
	})
}

func TestCloseLosesWhatCannotBeSentInTime(t *testing.T) {
	s := &server{answer: func(time.Duration, int) error { return errAway }}
	var warnings []string
	within(t, s, Config[int]{MaxBytes: 100, Warn: func(format string, args ...any) {
		warnings = append(warnings, fmt.Sprintf(format, args...))
	}}, func(t *testing.T, q *Queue[int]) {
		q.Put(1, 10)
		q.Put(2, 10)
		time.Sleep(time.Hour)
		synctest.Wait()
		tries, began := len(s.tries), time.Now()
		stats := closeWithin(q, 5*time.Second)
		require.Equal(t, 5*time.Second, time.Since(began))
		require.Greater(t, len(s.tries), tries+1, "more than one attempt")
		require.EqualValues(t, 2, stats.LostAtEnd)
		require.Zero(t, stats.QueuedBytes)
		q.Put(3, 10)
		require.EqualValues(t, 3, q.Stats().LostAtEnd)
	})
	require.LessOrEqual(t, len(warnings), 62, "one a minute")
	require.Contains(t, warnings[5], "the server did not accept data, which is kept and retried: connection refused (waiting: 2, lost so far: 0")
}

func TestHangingServerIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		q := New(Config[int]{MaxBytes: 100, Timeout: 10 * time.Second, Send: func(ctx context.Context, _ int) error {
			tries++
			<-ctx.Done()
			return ctx.Err()
		}})
		q.Put(1, 10)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		require.Greater(t, tries, 10)
		began := time.Now()
		stats := closeWithin(q, 5*time.Second)
		require.Equal(t, 5*time.Second, time.Since(began))
		require.EqualValues(t, 1, stats.LostAtEnd)
	})
}
