// SPDX-License-Identifier: Apache-2.0

package symbols

import (
	"bytes"
	"fmt"
	"sync"

	"github.com/gpu-gadgets/gpu-gadgets/internal/elf/module"
	"github.com/gpu-gadgets/gpu-gadgets/internal/elf/vdso"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
)

// kernels has the functions of the code that the kernel maps into each process. It is read once, and safe for concurrent use.
type kernels struct {
	once  sync.Once
	bytes int    // of the code
	table *Table // nil: there is none
}

func (k *kernels) read() {
	image := vdso.Image()
	m, err := module.Open(bytes.NewReader(image), int64(len(image)))
	if err != nil {
		return
	}
	all, err := m.Functions(nil)
	if err != nil {
		return
	}
	if k.table, err = NewTable(all); err == nil {
		k.bytes = len(image)
	}
}

// named is the function of a call in a mapping of that code, or where in it the address is.
func (k *kernels) named(m procmaps.Mapping, call, address uint64) string {
	k.once.Do(k.read)
	if k.table != nil && vdso.Is(m, k.bytes) {
		if name, ok := k.table.Lookup(call - m.Start); ok { // it is linked at 0
			return name
		}
	}
	return fmt.Sprintf("%#x", address-m.Start)
}
