// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"

	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/ringbuf"
	"github.com/stretchr/testify/require"
)

// offsetsOf are those of members of a struct, in bytes.
func offsetsOf(t testing.TB, types *btf.Spec, name string, members ...string) (at []int) {
	t.Helper()
	var s *btf.Struct
	require.NoError(t, types.TypeByName(name, &s))
	for _, m := range s.Members {
		if slices.Contains(members, m.Name) {
			at = append(at, int(m.Offset.Bytes()))
		}
	}
	require.Len(t, at, len(members)) // in the order of the struct
	return at
}

// readOOMs empties the ring of failed allocations, as a consumer would.
func (tr *Tracer) readOOMs(at []int) {
	reader, err := ringbuf.NewReader(tr.Maps["ooms_ring"])
	require.NoError(tr.t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		var record ringbuf.Record
		for reader.ReadInto(&record) == nil {
			b := record.RawSample
			tr.refusedInuse.Store(int64(binary.NativeEndian.Uint64(b[at[3]:])))
			tr.ooms.Add(1)
			if binary.NativeEndian.Uint32(b[at[0]:]) == 2 && bytes.HasPrefix(b[at[1]:], []byte("array\x00")) { // out of memory
				tr.array.Add(int64(binary.NativeEndian.Uint64(b[at[2]:])))
			}
		}
	}()
	tr.t.Cleanup(func() { reader.Close(); <-done })
}

// OOMs returns the number of failed allocations reported so far.
func (tr *Tracer) OOMs() int { return int(tr.ooms.Load()) }

// InuseOfOOM returns the bytes that the process of the newest failed allocation held of the same memory.
func (tr *Tracer) InuseOfOOM() int64 { return tr.refusedInuse.Load() }

// RefusedArrayBytes returns the requested sizes of arrays that were refused with out-of-memory.
func (tr *Tracer) RefusedArrayBytes() int64 { return tr.array.Load() }
