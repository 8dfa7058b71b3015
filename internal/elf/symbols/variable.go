// SPDX-License-Identifier: Apache-2.0

package symbols

import "github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"

// Variable names the variable at an address of a process, demangled, if it is as large as a
// pointer. It does not read what the process has mapped: Frame was called for the address, which
// has no function.
//
// Data is in the file whose code is nearest to it, below or above; an address that is not within
// the file's own bytes there has no name.
func (r *Resolver) Variable(process uint64, pid uint32, address uint64) (string, bool) {
	for _, m := range r.mappings.Around(pid, address) {
		if name, ok := r.variableOf(process, pid, m, address); ok {
			return name, true
		}
	}
	return "", false
}

// variableOf is Variable in the file of a mapping.
func (r *Resolver) variableOf(process uint64, pid uint32, m procmaps.Mapping, address uint64) (string, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.load(process, pid, m, variables)
	if l.module == nil || l.table == nil {
		return "", false
	}
	start, ok := l.module.CodeAddress(m.Offset, m.End-m.Start)
	if !ok {
		return "", false
	}
	linked := start + (address - m.Start) // wraps for what is below the code
	if _, ok := l.module.FileOffset(linked); !ok {
		return "", false
	}
	name, _ := r.name(pid, l, linked)
	return name, name != ""
}
