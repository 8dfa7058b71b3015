// SPDX-License-Identifier: Apache-2.0

package pprof

import (
	"bytes"
	"testing"

	"github.com/google/pprof/profile"
	"github.com/stretchr/testify/require"

	gpu "github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile/fixture"
)

// bySpan is the values of one column by the label.
func bySpan(t *testing.T, raw []byte, column int) map[string]int64 {
	t.Helper()
	p, err := profile.Parse(bytes.NewReader(raw))
	require.NoError(t, err)
	all := map[string]int64{}
	for _, s := range p.Sample {
		id := ""
		if v := s.Label["span_id"]; len(v) > 0 {
			id = v[0]
		}
		all[id] += s.Value[column]
	}
	return all
}

func TestSpansAreLabelsOfSamples(t *testing.T) {
	p := fixture.Spans()
	want := map[string]int64{}
	for _, r := range p.Rows {
		want[r.Span.String()] += r.AllocBytes
	}
	require.Len(t, want, 3)

	var file bytes.Buffer
	require.NoError(t, Encode(&file, p))
	require.Equal(t, want, bySpan(t, file.Bytes(), 1))
	back, err := Decode(&file)
	require.NoError(t, err)
	for i, r := range back.Rows {
		require.Equal(t, p.Rows[i].Span, r.Span)
		require.Equal(t, p.Rows[i].AllocBytes, r.AllocBytes)
	}

	var window bytes.Buffer
	var e WindowEncoder
	_, err = e.Encode(&window, Window{Rows: p.Rows, Columns: []Column{{"alloc_space", "bytes", gpu.AllocSpace}}})
	require.NoError(t, err)
	require.Equal(t, want, bySpan(t, window.Bytes(), 0))
}
