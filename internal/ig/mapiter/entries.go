// SPDX-License-Identifier: Apache-2.0

package mapiter

import (
	"errors"
	"reflect"

	"github.com/cilium/ebpf"
)

// One system call reads as many entries as fit into batchBytes, and at least batchLeast:
// of a hash map the kernel reads whole buckets, which hold a few. Maps are read about
// every second, and the buffers are garbage afterwards.
const (
	batchBytes = 64 << 10
	batchLeast = 128
)

// Entries calls f for every entry; key and value are only valid during the call.
// Entries that are added or deleted meanwhile may be missed.
func Entries(m *ebpf.Map, f func(key, value []byte)) error {
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
