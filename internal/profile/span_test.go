// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
)

func TestSpansAreWrittenAsTracesWriteThem(t *testing.T) {
	for text, id := range map[string]Span{"00f067aa0ba902b7": 0x00f067aa0ba902b7, "ffffffffffffffff": ^Span(0), "": 0} {
		require.Equal(t, text, id.String())
		require.Equal(t, id, ParseSpan(text))
	}
	for _, text := range []string{"f067aa0ba902b7", "00f067aa0ba902b", "00f067aa0ba902b77", "zzf067aa0ba902b7", "0000000000000000", "+0f067aa0ba902b7"} {
		require.Zero(t, ParseSpan(text), text)
	}
}

func TestRowsOfSpansStayApartAndDiffAddsThemUp(t *testing.T) {
	of := func(bytes int64, span Span) Row {
		return Row{Stack: stack.UnknownStack(), Kind: "device", Span: span,
			Values: Values{AllocBytes: bytes, AllocObjects: 1, InuseBytes: bytes, InuseObjects: 1, PeakBytes: bytes}}
	}
	before := New(time.Now(), []Row{of(1, 1), of(2, 2)})
	after := New(time.Now(), []Row{of(4, 1), of(8, 3), of(16, 0), of(32, 3)})
	require.Len(t, after.Rows, 3)
	require.EqualValues(t, 60, after.Sum().InuseBytes)
	changes := Diff(before, after)
	require.Len(t, changes, 1)
	require.EqualValues(t, 57, changes[0].Delta(InuseSpace))
}
