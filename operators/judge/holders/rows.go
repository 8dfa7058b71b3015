// SPDX-License-Identifier: Apache-2.0

package holders

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"

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
type layout struct{ process, stack, kind, device, instance, inuse int }

func layoutOf(spec *ebpf.MapSpec) (l layout, err error) {
	err = errors.Join(
		ig.Offsets(spec.Key, ig.At(&l.process, "process", 8), ig.At(&l.stack, "stack", 8), ig.At(&l.kind, "kind", 4),
			ig.At(&l.device, "device", 4), ig.At(&l.instance, "instance", 8)),
		ig.Offsets(spec.Value, ig.At(&l.inuse, "inuse_bytes", 8)),
	)
	return l, err
}

// memory is the part of a process's that a refusal is about: pinned memory of the host takes no room on a GPU, and what is
// on another device none on the one that refused.
type memory struct {
	process uint64
	isHost  bool
	device  int32 // profile.UnknownDevice: of all; not used for the host's
}

// has reports whether a row is of it, as oom_add() of bpf/memory/oom.h has it: what may be on the device is.
func (m memory) has(key []byte, l layout) bool {
	if binary.NativeEndian.Uint64(key[l.process:]) != m.process || (binary.NativeEndian.Uint32(key[l.kind:]) == kindHost) != m.isHost {
		return false
	}
	device := int32(binary.NativeEndian.Uint32(key[l.device:]))
	return m.isHost || m.device < 0 || device < 0 || device == m.device
}

// sums are bytes in use by row: the key up to the instance, which is not shown.
type sums map[string]Holder

// kindHost is KIND_HOST of bpf/memory/apis.h, whose name is profile.KindHost.
const kindHost = 3

// add reads the rows of a process that live: of pinned memory of the host, or of a device, as enum oom_memory has it.
func (s sums) add(of memory, rows *ebpf.Map, l layout, instances *ebpf.Map) error {
	ended := map[uint64]bool{}
	var key, value []byte
	entries := rows.Iterate()
	for entries.Next(&key, &value) {
		if !of.has(key, l) {
			continue
		}
		number := binary.NativeEndian.Uint64(key[l.instance:])
		gone, asked := ended[number]
		if !asked {
			gone = isEnded(instances, of.process, number)
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
