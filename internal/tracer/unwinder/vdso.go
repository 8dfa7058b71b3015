// SPDX-License-Identifier: Apache-2.0

package unwinder

import (
	"bytes"
	"os"

	"github.com/gpu-gadgets/gpu-gadgets/internal/elf/unwind"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
)

// vdsoInode is UNWIND_VDSO of bpf/stack/rules.h: the code that the kernel maps into each process
// (vdso(7)), where threads are that poll a clock.
const vdsoInode = 1<<64 - 1

// kernels has the rules of that code, which is the same in each process of 64 bits, so in ours; it is read
// once. Without it frames are found by frame pointers.
func (u *Unwinder) kernels() *file {
	if u.vdso == nil {
		u.vdso = &file{}
		if image := vdsoImage(); image != nil {
			if rules, err := unwind.Open(bytes.NewReader(image), int64(len(image))); err == nil {
				u.vdso.rules = rules
			}
		}
	}
	return u.vdso
}

// vdsoImage is the vDSO of this process; nil: there is none.
func vdsoImage() []byte {
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return nil
	}
	defer maps.Close()
	var image []byte
	_ = procmaps.Parse(maps, func(m procmaps.Mapping) bool {
		if m.Path != "[vdso]" {
			return true
		}
		memory, err := os.Open("/proc/self/mem")
		if err != nil {
			return false
		}
		defer memory.Close()
		b := make([]byte, m.End-m.Start)
		if _, err := memory.ReadAt(b, int64(m.Start)); err == nil {
			image = b
		}
		return false
	})
	return image
}
