// SPDX-License-Identifier: Apache-2.0

package spans

import (
	"encoding/binary"
	"reflect"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/operators/attach/spans"
	"github.com/gpu-gadgets/gpu-gadgets/operators/decode/reap"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/bpftest"
)

// Layouts that Go and C share: the source of a process, and the fields that make a row idle.
func TestLayoutsAreThoseOfC(t *testing.T) {
	for gadget, idle := range map[string]func([]byte) (uint64, bool){
		"cuda_alloc": reap.IdleAllocations, "py_stack": reap.IdleCounts, "cuda_kernel": reap.IdleCounts,
	} {
		t.Run(gadget, func(t *testing.T) {
			spec := bpftest.Spec(t, "../../../gadgets/"+gadget+"/program.bpf.c", "-mcpu=v3")
			var source *btf.Struct
			require.NoError(t, spec.Types.TypeByName("span_source", &source))
			mirror := reflect.TypeFor[spans.Source]()
			require.EqualValues(t, mirror.Size(), source.Size)
			require.Len(t, source.Members, mirror.NumField())
			for i, m := range source.Members {
				f := mirror.Field(i)
				require.EqualValues(t, f.Offset, m.Offset.Bytes(), m.Name)
				if f.Name != "_" {
					require.Equal(t, strings.ReplaceAll(m.Name, "_", ""), strings.ToLower(f.Name))
				}
			}
			require.EqualValues(t, mirror.Size(), spec.Maps["span_source_by_tgid"].ValueSize)
			requireFacts(t, spec)
			requireIdle(t, spec, idle)

			// If it is off, unused maps take no memory.
			require.EqualValues(t, 1, spec.Maps["span_source_by_tgid"].MaxEntries)
			require.EqualValues(t, 1, spec.Maps["rows_by_span"].MaxEntries)
			spans.Enlarge(spec.Maps)
			require.Greater(t, spec.Maps["rows_by_span"].MaxEntries, uint32(10000))
		})
	}
}

// requireFacts compares what a program remembers of a span.
func requireFacts(t *testing.T, spec *ebpf.CollectionSpec) {
	t.Helper()
	facts := spec.Maps["span_facts_by_id"]
	require.EqualValues(t, binary.Size(spans.FactsKey{}), facts.KeySize)
	require.EqualValues(t, binary.Size(spans.FactsValue{}), facts.ValueSize)
	var c *btf.Struct
	require.NoError(t, spec.Types.TypeByName("span_facts", &c))
	require.Equal(t, "values", c.Members[1].Name)
	require.EqualValues(t, reflect.TypeFor[spans.FactsValue]().Field(1).Offset, c.Members[1].Offset.Bytes())
	values := c.Members[1].Type.(*btf.Array)
	require.EqualValues(t, spans.Attributes, values.Nelems)
	require.EqualValues(t, 1, facts.MaxEntries)
}

// requireIdle sets one member of a row after the other.
func requireIdle(t *testing.T, spec *ebpf.CollectionSpec, idle func([]byte) (uint64, bool)) {
	t.Helper()
	var row, outer *btf.Struct
	require.NoError(t, spec.Types.TypeByName("row", &row))
	require.NoError(t, spec.Types.TypeByName("span_row", &outer))
	require.Equal(t, "row", outer.Members[0].Name)
	require.EqualValues(t, outer.Size, spec.Maps["rows_by_span"].ValueSize)
	with := func(names ...string) []byte {
		b := make([]byte, outer.Size)
		for _, name := range names {
			found := false
			for _, m := range row.Members {
				if m.Name == name {
					b[m.Offset.Bytes()], found = 1, true
				}
			}
			require.True(t, found, name)
		}
		return b
	}
	if counter := row.Members[0].Name; counter == "samples" || counter == "calls" {
		n, is := idle(with(counter))
		require.True(t, is)
		require.EqualValues(t, 1, n)
		return
	}
	n, is := idle(with("alloc_objects"))
	require.False(t, is, "it holds something")
	require.EqualValues(t, 1, n)
	for _, freed := range []string{"freed_objects", "implicit_objects"} {
		_, is = idle(with("alloc_objects", freed))
		require.True(t, is, freed)
	}
}
