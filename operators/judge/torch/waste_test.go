// SPDX-License-Identifier: Apache-2.0

package torch

import (
	"testing"

	"github.com/cilium/ebpf"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/ig"
	"github.com/gpu-gadgets/gpu-gadgets/operators/attach/spans"
)

func TestSampledBlocksAreRecognized(t *testing.T) {
	require.False(t, isAnySampled([]block{{start: 512, end: 1536}, {start: 4096, end: 4608}}))
	require.True(t, isAnySampled([]block{{start: 512, end: 1536}, {start: 4096, end: 4096 + 1_048_577}}))
	require.False(t, isAnySampled(nil))
}

// TestWitnessesThatDisagreeAreReportedOnce by process, but not what was in flight at attach.
func TestWitnessesThatDisagreeAreReportedOnce(t *testing.T) {
	var w witness
	require.Empty(t, w.see(1, 4711, 100000, oddBlocks-1))
	require.Empty(t, w.see(1, 4711, 100000, oddBlocks))
	require.Contains(t, w.see(1, 4711, 900, 100), "of 1000 requests (pytorch:malloc), 100 are not")
	require.Empty(t, w.see(1, 4711, 900, 200))
	require.Contains(t, w.see(2, 4712, 0, oddBlocks), "process 4712")
}

// specs are the maps of a gadget before they are made.
type specs map[string]*ebpf.MapSpec

func (s specs) GetVar(name string) (any, bool) {
	for of, m := range s {
		if name == operators.MapSpecPrefix+of {
			return m, true
		}
	}
	return nil, false
}

func (specs) SetVar(string, any) {}

// Each row may have an entry: rows by stack, those without a stack, and those of spans.
func TestRequestsHaveRoomForAllRows(t *testing.T) {
	s := specs{"rows_by_stack": {MaxEntries: 32768}, "unknown_rows": {MaxEntries: 4096}, requestsMap: {MaxEntries: 1}}
	require.NoError(t, enlargeRequests(s))
	ofSpans := specs{"span_source_by_tgid": {}, "rows_by_span": {}, "span_facts_by_id": {}}
	spans.Enlarge(ofSpans)
	require.Equal(t, 32768+4096+ofSpans["rows_by_span"].MaxEntries, s[requestsMap].MaxEntries)

	delete(s, requestsMap)
	require.ErrorIs(t, enlargeRequests(s), ig.ErrAbsent)
}
