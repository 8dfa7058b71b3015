// SPDX-License-Identifier: Apache-2.0

package ig

import (
	"fmt"

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
