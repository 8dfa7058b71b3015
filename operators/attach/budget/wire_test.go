// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/cilium/ebpf/btf"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/ig"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/bpftest"
)

// TestLayoutIsThatOfTheGadgets: what is read and written by hand here is what C has.
func TestLayoutIsThatOfTheGadgets(t *testing.T) {
	kernel := bpftest.Spec(t, "../../../gadgets/cuda_kernel/program.bpf.c", "-mcpu=v3")
	alloc := bpftest.Spec(t, "../../../gadgets/cuda_alloc/program.bpf.c", "-mcpu=v3")
	at := func(of btf.Type, name string, size, want int) {
		t.Helper()
		offset, err := ig.Offset(of, name, size)
		require.NoError(t, err)
		require.Equal(t, want, offset, name)
	}
	traps := kernel.Maps["budget_traps"].Value
	at(traps, "entry_ns", 8, 0)
	at(traps, "return_ns", 8, 8)
	at(traps, "doubt_1024", 8, 16)
	at(traps, "count_only", 8, 24)
	at(kernel.Maps["budget_by_api"].Value, "hits", 8, 0)
	at(kernel.Maps["budget_by_api"].Value, "ns", 8, 8)
	sum := kernel.Maps["budget_by_thread"].Value
	at(sum, "process", 8, 0)
	at(sum, "cost_ns", 8, 8)
	at(sum, "cpu_ns", 8, 16)
	gate := kernel.Maps["window_gates"].Value
	at(gate, "begin_boot_ns", 8, 0)
	at(gate, "end_boot_ns", 8, 8)
	at(gate, "window", 8, 16)
	samples := kernel.Maps["sample_states"].Value
	at(samples, "shift", 4, 16)

	row, key := alloc.Maps["rows_by_stack"].Value, alloc.Maps["rows_by_stack"].Key
	at(row, "alloc_bytes", 8, rowAlloc)
	at(row, "alloc_objects", 8, rowAlloc+8)
	at(row, "freed_bytes", 8, rowFreed)
	at(row, "freed_objects", 8, rowFreed+8)
	at(row, "implicit_bytes", 8, rowImplicit)
	at(row, "implicit_objects", 8, rowImplicit+8)
	at(row, "inuse_bytes", 8, rowInuse)
	at(key, "kind", 4, rowKindOffset)
	at(alloc.Maps["live_by_pointer"].Key, "space", 4, liveSpaceOffset)

	spans := alloc.Maps["rows_by_span"]
	at(spans.Key, "row", 24, 0)
	// The numbers have no BTF: by the order of the enumerators, the first of which is given.
	require.Equal(t, kindTensor, enumerator(t, "../../../bpf/memory/apis.h", "KIND_NONE", "KIND_TENSOR"))
	require.Equal(t, spaceTensor, 1+enumerator(t, "../../../bpf/memory/live.h", "SPACE_POINTER", "SPACE_TENSOR"))
}

// enumerator counts how many others come before one of an enumeration.
func enumerator(t *testing.T, file, first, name string) int {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	var names []string
	for _, match := range regexp.MustCompile(`(?m)^\t([A-Z_]+)(?: = \d+)?,`).FindAllStringSubmatch(string(text), -1) {
		names = append(names, match[1])
	}
	from, to := slices.Index(names, first), slices.Index(names, name)
	require.True(t, from >= 0 && to > from, "%s and %s in %s", first, name, file)
	return to - from
}
