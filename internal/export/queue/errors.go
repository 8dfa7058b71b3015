// SPDX-License-Identifier: Apache-2.0

package queue

import "time"

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

// AnsweredError is an answer to this item that may be another one next time, such as 429. The
// server may accept other items, so this one stops them for a short time only.
type AnsweredError struct {
	Err error
	// IsOwn: the server has said that the reason is in this item, so others do not wait at all.
	IsOwn bool
}

func (e *AnsweredError) Error() string { return e.Err.Error() }
func (e *AnsweredError) Unwrap() error { return e.Err }
