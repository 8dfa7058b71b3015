// SPDX-License-Identifier: Apache-2.0

package unwinder

import (
	"bytes"

	"github.com/gpu-gadgets/gpu-gadgets/internal/elf/unwind"
	"github.com/gpu-gadgets/gpu-gadgets/internal/elf/vdso"
)

// vdsoInode is UNWIND_VDSO of bpf/stack/rules.h: the code that the kernel maps into each process
// (vdso(7)), where threads are that poll a clock.
const vdsoInode = 1<<64 - 1

// kernels has the rules of that code, which is the same in each process of 64 bits, so in ours; it is read
// once. Without it frames are found by frame pointers.
func (u *Unwinder) kernels() *file {
	if u.vdso == nil {
		u.vdso = &file{}
		if image := vdso.Image(); image != nil {
			if rules, err := unwind.Open(bytes.NewReader(image), int64(len(image))); err == nil {
				u.vdso.rules = rules
			}
		}
	}
	return u.vdso
}
