// SPDX-License-Identifier: Apache-2.0

package symbols

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
	"github.com/gpu-gadgets/gpu-gadgets/internal/stack/library"
	"github.com/gpu-gadgets/gpu-gadgets/internal/stack/recent"
)

// longMaps has stacks of many frames whose names are as long as they may be, and become longer for a terminal.
type longMaps struct{ fakeMaps }

func (*longMaps) Symbol(id uint64) ([]byte, bool) {
	name, file := []byte(strings.Repeat("\x9f", 128)), strings.Repeat("\x9e", 256)
	binary.NativeEndian.PutUint64(name[100:], id)
	return wireSymbol(string(name), file), true
}

func (*longMaps) Stack(id uint64) ([]byte, bool) {
	python := make([][2]uint64, 128)
	for i := range python {
		python[i] = [2]uint64{uint64(i + 1), id}
	}
	return wireStack(nil, python...), true
}

// A tenant has thousands of stacks, each of which takes 190 KiB: they are cut, and others have all frames.
func TestTheMemoryForStacksIsBounded(t *testing.T) {
	const hostile, honest = 1, 2
	s := NewStacks(NewResolver(&containers{}), &longMaps{}, library.Paths{})
	s.room.most = 8 << 20
	whole := s.Stack(1, hostile, 1)
	require.Len(t, whole.Stack, 128)
	const stacks = 500
	for id := range uint64(stacks) {
		s.Stack(1, hostile, id+1)
	}
	require.LessOrEqual(t, s.room.bytes, s.room.most*3/4)
	require.Less(t, s.Cut(), uint64(stacks))
	require.Greater(t, s.Cut(), uint64(stacks*9/10))
	require.Same(t, whole, s.Stack(1, hostile, 1))
	last := s.Stack(1, hostile, stacks)
	require.Equal(t, stack.Truncated, last.Stack[len(last.Stack)-1].Function)
	require.Equal(t, whole.Stack[0].Function, last.Stack[0].Function)
	require.True(t, strings.HasPrefix(last.Folded, stack.Truncated+"; "))
	cut := s.Cut()
	require.Same(t, last, s.Stack(1, hostile, stacks))

	s.maps = &fakeMaps{
		stacks:  map[uint64][]byte{7: wireStack(nil, [2]uint64{200, 3})},
		symbols: map[uint64][]byte{200: wireSymbol("Model.load", "/app/model.py")},
	}
	require.Equal(t, "Model.load (model.py:3)", s.Stack(2, honest, 7).Folded)
	require.Equal(t, cut, s.Cut())

	s.room.most = 0
	s.stacks = recent.New[stackKey, *entry](namedStacks)
	require.Equal(t, "Model.load (model.py:3)", s.Stack(1, hostile, 7).Folded, "it is short")
	require.Equal(t, cut, s.Cut())
}

// What is forgotten makes room.
func TestStacksThatAreForgottenTakeNoRoom(t *testing.T) {
	s := NewStacks(NewResolver(&containers{}), &longMaps{}, library.Paths{})
	for id := range uint64(2*namedStacks + 1) {
		e := &entry{Named: s.unknown, tenant: 1, bytes: 1}
		s.room.take(e.tenant, e.bytes)
		s.stacks.Put(stackKey{1, id}, e)
		require.Equal(t, s.stacks.Len(), s.room.bytes)
	}
	require.Equal(t, namedStacks+1, s.room.bytes)
	require.Equal(t, s.room.bytes, s.room.of[1])

	s.room.most = s.room.bytes
	_, bytes := s.room.name(2, s.unknown.Stack)
	require.Zero(t, bytes)
	s.room.take(1, -s.room.bytes)
	_, bytes = s.room.name(2, s.unknown.Stack)
	require.Positive(t, bytes)
}

// The names of a cut stack are cut, too: one may have 16 KiB.
func TestCutStacks(t *testing.T) {
	long := stack.Frame{Kind: stack.KindNative, Function: strings.Repeat("x", 16<<10) + "é", File: "/" + strings.Repeat("long/", 800) + "lib.so"}
	for n := range 40 {
		s := stack.Stack{}
		for range n + 1 {
			s = append(s, long)
		}
		named := name(cut(s))
		require.LessOrEqual(t, named.bytes(), 2*cutBytes, n)
		require.True(t, strings.HasSuffix(named.Stack[0].Function, "xé"))
		require.Contains(t, named.Frame, "(lib.so)")
	}
	short := stack.Stack{}
	for n := range 10 {
		short = append(short, stack.Frame{Kind: stack.KindPython, Function: fmt.Sprint("f", n), File: "a.py"})
	}
	require.Equal(t, short, cut(short))
}

// A library may have names of 16 KiB, as many as are kept.
func TestTheMemoryForNamesIsBounded(t *testing.T) {
	r := NewResolver(&containers{})
	const long = 16 << 10
	for n := range 10 * namesBytes / long {
		r.names.Put(addressKey{"1", uint64(n)}, strings.Repeat("x", long))
	}
	require.LessOrEqual(t, r.names.Len()*long, 2*namesBytes+2*long)
	require.Positive(t, r.names.Len())
}
