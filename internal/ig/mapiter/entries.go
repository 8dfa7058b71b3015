// SPDX-License-Identifier: Apache-2.0

package mapiter

import (
	"errors"
	"reflect"
	"sync"

	"github.com/cilium/ebpf"
)

// One system call reads as many entries as fit into batchBytes, and at least batchLeast:
// of a hash map the kernel reads whole buckets, which hold a few.
const (
	batchBytes = 64 << 10
	batchLeast = 128
)

// Entries calls f for every entry; key and value are only valid during the call.
// Entries that are added or deleted meanwhile may be missed.
func Entries(m *ebpf.Map, f func(key, value []byte)) error {
	keySize, valueSize := int(m.KeySize()), int(m.ValueSize())
	pool := roomFor(keySize, valueSize)
	r := pool.Get().(*room)
	defer pool.Put(r)
	keys, values := r.keys, r.values
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

// room is for a batch.
type room struct{ keys, values reflect.Value }

// rooms has a sync.Pool of *room for each pair of sizes: a map is read about every second, and to clear
// the memory of new batches took a tenth of the processor time of a run with nothing to do.
var rooms sync.Map

func roomFor(keySize, valueSize int) *sync.Pool {
	sizes := [2]int{keySize, valueSize}
	if p, ok := rooms.Load(sizes); ok {
		return p.(*sync.Pool)
	}
	batch := max(batchBytes/(keySize+valueSize), batchLeast)
	p, _ := rooms.LoadOrStore(sizes, &sync.Pool{New: func() any { return &room{arrays(batch, keySize), arrays(batch, valueSize)} }})
	return p.(*sync.Pool)
}

// arrays makes a []([size]byte) of n elements: the batch calls need a slice with one
// element per entry, of the sizes that the gadget defines.
func arrays(n, size int) reflect.Value {
	return reflect.MakeSlice(reflect.SliceOf(reflect.ArrayOf(size, reflect.TypeFor[byte]())), n, n)
}
