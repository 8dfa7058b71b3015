// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"runtime"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestEqualStacksHaveOneNumber(t *testing.T) {
	leaf, root := Frame{Kind: KindPython, Function: "leaf", Line: 1}, Frame{Kind: KindPython, Function: "root"}
	all := []Stack{
		{leaf, root}, {root, leaf}, {leaf}, {root}, {}, {leaf, leaf, root},
		{{Kind: KindPython, Function: "leaf", Line: 2}, root}, {{Kind: KindNative, Function: "leaf", Line: 1}, root},
	}
	var n Numbers
	for i, s := range all {
		require.EqualValues(t, i, n.Stack(s))
	}
	for i, s := range all {
		require.EqualValues(t, i, n.Stack(slices.Clone(s)), "elsewhere")
		require.EqualValues(t, i, n.Stack(s))
		require.Len(t, n.Frames(int32(i)), len(s))
		for j, f := range n.Frames(int32(i)) {
			require.Equal(t, s[j], n.Frame(f))
		}
	}
	require.Zero(t, n.Stack(all[0]))
	require.EqualValues(t, 2, n.Stack(all[0][:1]), "a part of a stack lies at the same place")
}

func TestNumbersAreFullWithMoreThanTheKernelHas(t *testing.T) {
	var n Numbers
	for i := range maxStacks {
		require.False(t, n.Full())
		n.Stack(Stack{{Function: strconv.Itoa(i)}})
	}
	require.True(t, n.Full())
	require.EqualValues(t, 0, n.Stack(Stack{{Function: "0"}}))
}

// A process each second makes new stacks for months.
func TestManyOldNumbersAreFull(t *testing.T) {
	var n Numbers
	for i := range fewStacks + 1 {
		n.Stack(Stack{{Function: strconv.Itoa(i)}})
	}
	require.False(t, n.Full())
	n.began = n.began.Add(-keepStacks - time.Second)
	require.True(t, n.Full())
	n = Numbers{}
	n.Stack(Stack{})
	n.began = n.began.Add(-keepStacks - time.Second)
	require.False(t, n.Full(), "it is not much")
}

// TestPlacesThatAreNotUsedAreForgotten: a place keeps its stack in memory, and each process
// has its own.
func TestPlacesThatAreNotUsedAreForgotten(t *testing.T) {
	var n Numbers
	var freed atomic.Int32
	const processes = 4 * maxStacks
	for range processes {
		s := Stack{{Function: "f"}}
		runtime.AddCleanup(&s[0], func(*atomic.Int32) { freed.Add(1) }, &freed)
		require.Zero(t, n.Stack(s))
	}
	require.False(t, n.Full(), "they are all the same")
	require.Eventually(t, func() bool {
		runtime.GC()
		return freed.Load() >= processes/2
	}, 30*time.Second, 10*time.Millisecond)
}
