// SPDX-License-Identifier: Apache-2.0

package symbols

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"github.com/gpu-gadgets/gpu-gadgets/internal/elf/module"
)

// Functions may overlap, wrap, have no size and share an address: a name that is found is that of a
// function that begins at or before the address.
func FuzzTable(f *testing.F) {
	f.Add([]byte("\x00\x10\x00\x00\x10\x00\x00\x00\x08\x10\x00\x00\xff\xff\xff\xff"), "a|b", uint64(0x1004))
	f.Add([]byte(strings.Repeat("\x01\x00\x00\x00\x00\x00\x00\x00", 200)), strings.Repeat("x", 300), ^uint64(0))
	f.Fuzz(func(t *testing.T, b []byte, names string, address uint64) {
		name := strings.Split(strings.ReplaceAll(names, "\x00", ""), "|")
		var all []module.Symbol
		for n := 0; len(b) >= 8; b, n = b[8:], n+1 {
			all = append(all, module.Symbol{
				Address: uint64(binary.LittleEndian.Uint32(b)) << (n % 9 * 4), Size: uint64(binary.LittleEndian.Uint32(b[4:])) << (n % 5 * 8),
				Name: name[n%len(name)],
			})
		}
		slices.SortFunc(all, func(a, b module.Symbol) int {
			if a.Address < b.Address {
				return -1
			}
			if a.Address > b.Address {
				return 1
			}
			return 0
		})
		table, err := NewTable(all)
		if err != nil {
			t.Fatal(err)
		}
		addresses := []uint64{address}
		for _, fn := range all {
			addresses = append(addresses, fn.Address, fn.Address+fn.Size/2)
		}
		for _, at := range addresses {
			found, ok := table.Lookup(at)
			if ok && !slices.ContainsFunc(all, func(fn module.Symbol) bool { return fn.Name == found && fn.Address <= at }) {
				t.Fatalf("%#x is in %q", at, found)
			}
		}
	})
}
