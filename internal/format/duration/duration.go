// SPDX-License-Identifier: Apache-2.0

// Package duration reads durations as users type them into flags: 30s, 1m30s, 250ms, or a
// plain number, which is seconds.
package duration

import (
	"errors"
	"strconv"
	"time"
)

// ErrSyntax is returned by Parse for everything else.
var ErrSyntax = errors.New("want a duration such as 30s, 2m or 30 (seconds)")

// Parse reads a duration, which may be negative.
func Parse(text string) (time.Duration, error) {
	if _, err := strconv.ParseFloat(text, 64); err == nil {
		text += "s"
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, ErrSyntax
	}
	return d, nil
}

// Value is a flag of package pflag that is not negative.
type Value time.Duration

// String implements pflag.Value.
func (v *Value) String() string { return time.Duration(*v).String() }

// Type implements pflag.Value.
func (*Value) Type() string { return "duration" }

// Set implements pflag.Value.
func (v *Value) Set(text string) error {
	d, err := Parse(text)
	if err != nil || d < 0 {
		return ErrSyntax
	}
	*v = Value(d)
	return nil
}
