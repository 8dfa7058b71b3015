// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"encoding/binary"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/bpftest"
)

// drop is struct drop_row of bpf/program/drops.h.
type drop struct {
	Reason       [24]byte
	Count, Bytes uint64
}

func (tr *Tracer) drops() (all []drop) {
	tr.t.Helper()
	iter := bpftest.Iterate(tr.t, tr.Collection, "dump_drops", "drops_by_reason")
	defer iter.Close()
	r, err := iter.Open()
	require.NoError(tr.t, err)
	defer r.Close()
	for {
		var d drop
		if binary.Read(r, binary.NativeEndian, &d) != nil {
			require.NotEmpty(tr.t, all, "no reasons at all")
			return all
		}
		all = append(all, d)
	}
}

// Drops reads the reasons that were counted at least once. With rulesVariable, stacks that are cut
// because they were the first ones do not count.
func (tr *Tracer) Drops() map[string]uint64 {
	tr.t.Helper()
	counted := map[string]uint64{}
	for _, d := range tr.drops() {
		if d.Count > 0 && !(HasRules() && isOfFirstStacks(text(d.Reason[:]))) {
			counted[text(d.Reason[:])] = d.Count
		}
	}
	return counted
}

// DroppedBytes is the bytes of allocations that are in no row.
func (tr *Tracer) DroppedBytes() (sum uint64) {
	tr.t.Helper()
	for _, d := range tr.drops() {
		sum += d.Bytes
	}
	return sum
}
