// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/gpu-gadgets/gpu-gadgets/internal/ig"
	"github.com/gpu-gadgets/gpu-gadgets/internal/ig/mapiter"
)

// The part of cuda_alloc's maps that is about tensors (bpf/memory/rows.h, bpf/memory/live.h,
// bpf/torch/torch.h); a test compares it with BTF.
const (
	rowKindOffset   = 16 // of struct row_key
	kindTensor      = 7
	liveSpaceOffset = 16 // of struct live_key
	spaceTensor     = 5
	// struct row begins with these sums: bytes, then objects.
	rowAlloc, rowFreed, rowImplicit, rowInuse = 0, 16, 32, 48
)

// dropTensors ends the state of tensors: as far as is known, none is in use any more.
// Their probes must be gone.
func dropTensors(find func(string) (*ebpf.Map, error)) error {
	var err error
	each := func(name string, change func(m *ebpf.Map, key, value []byte) error) {
		m, e := find(name)
		if errors.Is(e, ig.ErrAbsent) {
			return
		}
		var all [][2][]byte
		if e == nil {
			e = mapiter.Entries(m, func(key, value []byte) { all = append(all, [2][]byte{bytes.Clone(key), bytes.Clone(value)}) })
		}
		for _, entry := range all {
			if e == nil {
				e = change(m, entry[0], entry[1])
			}
		}
		if e != nil && !errors.Is(e, ebpf.ErrKeyNotExist) {
			err = errors.Join(err, fmt.Errorf("end the rows of tensors in %s: %w", name, e))
		}
	}
	remove := func(m *ebpf.Map, key []byte) error {
		if err := m.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return err
		}
		return nil
	}
	each("live_by_pointer", func(m *ebpf.Map, key, _ []byte) error {
		if binary.NativeEndian.Uint32(key[liveSpaceOffset:]) != spaceTensor {
			return nil
		}
		return remove(m, key)
	})
	for _, rows := range []string{"rows_by_stack", "unknown_rows", "rows_by_span"} {
		each(rows, func(m *ebpf.Map, key, value []byte) error {
			if binary.NativeEndian.Uint32(key[rowKindOffset:]) != kindTensor {
				return nil
			}
			endRow(value)
			return m.Update(key, value, ebpf.UpdateExist)
		})
	}
	each("torch_pools", func(m *ebpf.Map, key, _ []byte) error { return remove(m, key) })
	return err
}

// endRow gives back what a row has in use: implicitly, as at the end of a process.
func endRow(row []byte) {
	for _, part := range []int{0, 8} {
		alloc := binary.NativeEndian.Uint64(row[rowAlloc+part:])
		freed := binary.NativeEndian.Uint64(row[rowFreed+part:])
		binary.NativeEndian.PutUint64(row[rowImplicit+part:], alloc-min(freed, alloc))
	}
	binary.NativeEndian.PutUint64(row[rowInuse:], 0)
}
