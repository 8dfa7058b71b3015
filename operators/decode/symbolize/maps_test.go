// SPDX-License-Identifier: Apache-2.0

package symbolize

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

type noMaps struct{}

func (noMaps) GetVar(string) (any, bool) { return nil, false }
func (noMaps) SetVar(string, any)        {}

func TestRowBeforeStartWaitsForIt(t *testing.T) {
	m := &kernelMaps{ctx: t.Context(), bound: make(chan struct{})}
	done := make(chan bool)
	go func() { done <- m.ready() }()
	select {
	case <-done:
		t.Fatal("did not wait")
	case <-time.After(20 * time.Millisecond):
	}
	m.bind(noMaps{})
	require.True(t, <-done)

	// A gadget without the maps has no stacks, and no panic.
	_, ok := m.Stack(1)
	require.False(t, ok)
	_, ok = m.Runtime(1)
	require.False(t, ok)
}

func TestEndOfTheRunEndsTheWait(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	m := &kernelMaps{ctx: ctx, bound: make(chan struct{})}
	require.False(t, m.ready())
}
