// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

var errMany = &AnsweredError{Err: errors.New("429: too many")}

// One item that the server never accepts, as Pyroscope does not accept a series beyond its limit.
func TestAnItemThatIsAlwaysRefusedStopsNoOthers(t *testing.T) {
	for _, isOwn := range []bool{false, true} {
		s := &server{answer: func(_ time.Duration, item int) error {
			if item == 1 {
				return &AnsweredError{Err: errors.New("429"), IsOwn: isOwn}
			}
			return nil
		}}
		within(t, s, Config[int]{MaxBytes: 1000}, func(t *testing.T, q *Queue[int]) {
			for i := range 10 {
				q.Put(i, 10)
			}
			time.Sleep(25 * time.Second)
			if isOwn {
				require.Len(t, s.tries, 10, "the others do not wait")
			}
			require.Equal(t, []int{0, 2, 3, 4, 5, 6, 7, 8, 9}, s.got)
			require.EqualValues(t, 1, q.Stats().QueuedItems, "it is kept")
			for i := 10; i < 800; i++ {
				q.Put(i, 10)
				time.Sleep(10 * time.Second)
			}
			require.Len(t, s.got, 799)
			stats := q.Stats()
			require.EqualValues(t, 1, stats.LostRejected)
			require.Zero(t, stats.QueuedItems)
			require.LessOrEqual(t, stats.Failures, int64(maxAnswers+maxTurns))
		})
	}
}

// A cluster with more series than the server takes: some items of each window are refused.
func TestManyRefusedItemsStopNoOthers(t *testing.T) {
	s := &server{answer: func(_ time.Duration, item int) error {
		if item%3 == 0 {
			return errMany
		}
		return nil
	}}
	within(t, s, Config[int]{MaxBytes: 10000}, func(t *testing.T, q *Queue[int]) {
		accepted := 0
		for i := range 2000 {
			q.Put(i, 10)
			if i%3 != 0 {
				accepted++
			}
			time.Sleep(5 * time.Second)
			require.LessOrEqual(t, accepted-len(s.got), 15, "they wait for a minute at most")
		}
		time.Sleep(time.Minute)
		require.Len(t, s.got, accepted)
		require.True(t, slices.IsSorted(s.got))
		require.Positive(t, q.Stats().LostRejected)
		require.Zero(t, q.Stats().LostFull)
	})
}

func TestAServerThatAcceptsItLaterGetsIt(t *testing.T) {
	s := &server{answer: func(at time.Duration, item int) error {
		if item == 1 && at < 30*time.Minute {
			return errMany
		}
		return nil
	}}
	within(t, s, Config[int]{MaxBytes: 1000}, func(t *testing.T, q *Queue[int]) {
		for i := range 400 {
			q.Put(i, 10)
			time.Sleep(10 * time.Second)
		}
		time.Sleep(time.Hour) // pauses have a random part: the one that begins before the server accepts it may be long
		require.Len(t, s.got, 400)
		require.Zero(t, q.Stats().Lost())
	})
}

// It accepts nothing, and does not say that it is away: nothing is lost within the limit.
func TestABusyServerIsAsOneThatIsAway(t *testing.T) {
	s := &server{answer: func(at time.Duration, _ int) error {
		if at < 3*time.Hour {
			return errMany
		}
		return nil
	}}
	within(t, s, Config[int]{MaxBytes: 10000}, func(t *testing.T, q *Queue[int]) {
		for i := range 100 {
			q.Put(i, 10)
			time.Sleep(10 * time.Second)
		}
		time.Sleep(3*time.Hour - 1000*time.Second)
		synctest.Wait()
		require.Less(t, len(s.tries), 3*3600/15+10, "it is spared")
		time.Sleep(10 * time.Minute)
		require.ElementsMatch(t, count(0, 99), s.got)
		require.Zero(t, q.Stats().Lost())
	})
}

func TestRefusedItemsTakeNoRoomFromOthers(t *testing.T) {
	s := &server{answer: func(_ time.Duration, item int) error {
		if item < 5 {
			return &AnsweredError{Err: errors.New("series"), IsOwn: true}
		}
		return errAway
	}}
	within(t, s, Config[int]{MaxBytes: 100}, func(t *testing.T, q *Queue[int]) {
		for i := range 5 {
			q.Put(i, 10)
		}
		synctest.Wait()
		for i := 5; i < 15; i++ {
			q.Put(i, 10)
		}
		s.answer = nil
		time.Sleep(time.Minute)
		require.Equal(t, count(5, 14), s.got)
		require.EqualValues(t, 5, q.Stats().LostFull)
	})
}

// An item of several parts, of which the server refuses one: the others arrive, and only that
// one is repeated.
func TestOnlyTheRefusedPartIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refuse := true
		var got []string
		var tries []string
		q := New(Config[string]{MaxBytes: 100, Send: func(_ context.Context, item string) error {
			tries = append(tries, item)
			if refuse && slices.Contains([]byte(item), 'b') {
				return errMany
			}
			got = append(got, item)
			return nil
		}, Split: func(item string) (parts []string, bytes []int64) {
			for _, part := range item {
				parts, bytes = append(parts, string(part)), append(bytes, 1)
			}
			return parts, bytes
		}})
		q.Put("abc", 3)
		q.Put("de", 2)
		q.Put("b", 1)
		time.Sleep(30 * time.Second)
		require.Equal(t, []string{"a", "c", "de"}, got)
		require.EqualValues(t, 2, q.Stats().QueuedItems)
		require.EqualValues(t, 2, q.Stats().QueuedBytes)
		require.Equal(t, []string{"abc", "a"}, tries[:2])
		require.NotContains(t, tries[1:], "abc")
		refuse = false
		time.Sleep(2 * time.Minute)
		require.Equal(t, []string{"a", "c", "de", "b", "b"}, got)
		require.Equal(t, Stats{CapacityBytes: 100, SentItems: 5, SentBytes: 6, Failures: q.Stats().Failures}, q.Close(canceled()))
	})
}

func TestCloseEndsInTimeWithRefusedItems(t *testing.T) {
	s := &server{answer: func(time.Duration, int) error { return &AnsweredError{Err: errors.New("series"), IsOwn: true} }}
	within(t, s, Config[int]{MaxBytes: 100}, func(t *testing.T, q *Queue[int]) {
		q.Put(1, 10)
		q.Put(2, 10)
		time.Sleep(10 * time.Second)
		began := time.Now()
		stats := closeWithin(q, 5*time.Second)
		require.Equal(t, 5*time.Second, time.Since(began))
		require.EqualValues(t, 2, stats.LostAtEnd)
		require.Zero(t, stats.QueuedBytes)
		require.Less(t, len(s.tries), 10, "at the end too it is spared")
	})
}
