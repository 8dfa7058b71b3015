// SPDX-License-Identifier: Apache-2.0

// Package vdso reads the code that the kernel maps into each process (vdso(7)), where threads are that poll a
// clock. It is in no file; that of this process stands for those of all processes of 64 bits.
package vdso

import (
	"os"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
)

// Path is the name in maps files. No process can choose it: paths of files begin with a slash, and names
// of other memory with [anon.
const Path = "[vdso]"

// Image is the ELF file that the code is; nil: this process has none.
func Image() []byte {
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return nil
	}
	defer maps.Close()
	var image []byte
	_ = procmaps.Parse(maps, func(m procmaps.Mapping) bool {
		if m.Path != Path {
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

// Is reports whether a mapping is what an image of so many bytes is: that of a process of 32 bits, whose addresses are
// below 4 GiB, is other code.
func Is(m procmaps.Mapping, bytes int) bool {
	return m.Path == Path && !m.IsFile() && m.Start >= 1<<32 && m.End-m.Start == uint64(bytes)
}
