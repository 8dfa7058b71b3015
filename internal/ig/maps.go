// SPDX-License-Identifier: Apache-2.0

package ig

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// Offset is where a member of `size` bytes of a key's or value's type is, in bytes.
func Offset(of btf.Type, name string, size int) (int, error) {
	s, ok := of.(*btf.Struct)
	if !ok {
		return 0, fmt.Errorf("%v is not a struct", of)
	}
	for _, m := range s.Members {
		if n, err := btf.Sizeof(m.Type); m.Name == name && err == nil && n == size {
			return int(m.Offset.Bytes()), nil
		}
	}
	return 0, fmt.Errorf("struct %s has no member %s of %d bytes", s.Name, name, size)
}

// One system call reads as many entries as fit into batchBytes, and at least batchLeast:
// of a hash map the kernel reads whole buckets, which hold a few. Maps are read about
// every second, and the buffers are garbage afterwards.
const (
	batchBytes = 64 << 10
	batchLeast = 128
)

// Each calls f for every entry; key and value are only valid during the call.
// Entries that are added or deleted meanwhile may be missed.
func Each(m *ebpf.Map, f func(key, value []byte)) error {
	keySize, valueSize := int(m.KeySize()), int(m.ValueSize())
	batch := max(batchBytes/(keySize+valueSize), batchLeast)
	keys := arrays(batch, keySize)
	values := arrays(batch, valueSize)
	var cursor ebpf.MapBatchCursor
	for {
		n, err := m.BatchLookup(&cursor, keys.Interface(), values.Interface(), nil)
		if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return err
		}
		for i := 0; i < n; i++ {
			f(keys.Index(i).Slice(0, keySize).Bytes(), values.Index(i).Slice(0, valueSize).Bytes())
		}
		if err != nil { // ErrKeyNotExist: that was the last batch
			return nil
		}
	}
}

// arrays makes a []([size]byte) of n elements: the batch calls need a slice with one
// element per entry, of the sizes that the gadget defines.
func arrays(n, size int) reflect.Value {
	return reflect.MakeSlice(reflect.SliceOf(reflect.ArrayOf(size, reflect.TypeFor[byte]())), n, n)
}
