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

// Member is a member of a key's or value's type, and where its offset goes.
type Member struct {
	to   *int
	name string
	size int
}

// At is a member of `size` bytes, whose offset in bytes goes to `to`.
func At(to *int, name string, size int) Member { return Member{to, name, size} }

// Offsets finds members of a key's or value's type, as Offset does.
func Offsets(of btf.Type, members ...Member) (err error) {
	for _, m := range members {
		if *m.to, err = Offset(of, m.name, m.size); err != nil {
			return err
		}
	}
	return nil
}
