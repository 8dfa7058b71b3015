// SPDX-License-Identifier: Apache-2.0

package kernels

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestRowsBeforeStartWaitAlsoWhenTheRunIsInterrupted: the map is there once Start was called.
func TestRowsBeforeStartWaitAlsoWhenTheRunIsInterrupted(t *testing.T) {
	for name, c := range map[string]struct {
		interrupt bool
		bound     time.Duration // 0: never
		waits     time.Duration
	}{
		"started":                       {bound: 3 * time.Second, waits: 3 * time.Second},
		"never started":                 {waits: startLimit},
		"interrupted, then started":     {interrupt: true, bound: 3 * time.Second, waits: 3 * time.Second},
		"interrupted, never started":    {interrupt: true, waits: endLimit},
		"interrupted, started too late": {interrupt: true, bound: time.Minute, waits: endLimit},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				defer time.Sleep(2 * time.Minute) // all that waits ends
				i := &instance{ctx: ctx, bound: make(chan struct{})}
				if c.interrupt {
					cancel()
				}
				if c.bound > 0 {
					time.AfterFunc(c.bound, func() { close(i.bound) })
				}
				began := time.Now()
				_, ok := i.lookup(1)
				require.False(t, ok, "there is no map")
				require.Equal(t, c.waits, time.Since(began))
			})
		})
	}
}
