// SPDX-License-Identifier: Apache-2.0

package holders

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/gpu-gadgets/gpu-gadgets/internal/ig"
)

// count is OOM_HOLDERS of bpf/memory/oom.h.
const count = 10

// Holder is a row that holds memory.
type Holder struct{ Stack, Bytes uint64 }

// Held is the memory that a process has in use.
type Held struct {
	Bytes uint64
	// Largest first; missing ones have no bytes.
	Largest [count]Holder
}

// layout is where the parts of a row and its key are, in bytes; see struct row of
// bpf/memory/rows.h.
type layout struct{ process, stack, instance, inuse int }

func layoutOf(spec *ebpf.MapSpec) (l layout, err error) {
	for _, f := range []struct {
		to   *int
		of   btf.Type
		name string
	}{
		{&l.process, spec.Key, "process"},
		{&l.stack, spec.Key, "stack"},
		{&l.instance, spec.Key, "instance"},
		{&l.inuse, spec.Value, "inuse_bytes"},
	} {
		if *f.to, err = ig.Offset(f.of, f.name, 8); err != nil {
			return l, err
		}
	}
	return l, nil
}

// sums are bytes in use by row: the key up to the instance, which is not shown.
type sums map[string]Holder

// add reads the rows of a process that live.
func (s sums) add(process uint64, rows *ebpf.Map, l layout, instances *ebpf.Map) error {
	ended := map[uint64]bool{}
	var key, value []byte
	entries := rows.Iterate()
	for entries.Next(&key, &value) {
		if binary.NativeEndian.Uint64(key[l.process:]) != process {
			continue
		}
		number := binary.NativeEndian.Uint64(key[l.instance:])
		gone, asked := ended[number]
		if !asked {
			gone = isEnded(instances, process, number)
			ended[number] = gone
		}
		// Signed: a free may have been counted before its allocation.
		if used := int64(binary.NativeEndian.Uint64(value[l.inuse:])); !gone && used > 0 {
			row := string(key[:l.instance])
			s[row] = Holder{binary.NativeEndian.Uint64(key[l.stack:]), s[row].Bytes + uint64(used)}
		}
	}
	if err := entries.Err(); err != nil {
		return fmt.Errorf("read %s: %w", rows, err)
	}
	return nil
}

// isEnded reads struct instance of bpf/memory/instance.h: the context was destroyed.
func isEnded(instances *ebpf.Map, process, number uint64) bool {
	var value struct{ Before, Ended uint64 }
	return instances.Lookup(struct{ Process, Number uint64 }{process, number}, &value) == nil && value.Ended != 0
}

func (s sums) held() (h Held) {
	all := make([]Holder, 0, len(s))
	for _, row := range s {
		h.Bytes += row.Bytes
		all = append(all, row)
	}
	slices.SortFunc(all, func(a, b Holder) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Stack, b.Stack))
	})
	copy(h.Largest[:], all)
	return h
}
