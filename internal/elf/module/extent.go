// SPDX-License-Identifier: Apache-2.0

package module

import (
	"cmp"
	"debug/elf"
	"slices"
)

// bounded gives every function a size, in place, and leaves out labels inside of others.
// Functions are sorted by address.
func (m *Module) bounded(sorted []Function) []Function {
	code := m.code()
	out := sorted[:0]
	covered := uint64(0) // end of what has a size of its own
	for i := 0; i < len(sorted); {
		next := i + 1 // behind the names of this address
		isSized := sorted[i].Size != 0
		for ; next < len(sorted) && sorted[next].Address == sorted[i].Address; next++ {
			isSized = isSized || sorted[next].Size != 0
		}
		at := sorted[i].Address
		for len(code) > 0 && code[0].end <= at {
			code = code[1:]
		}
		end := uint64(0)
		if len(code) > 0 && code[0].start <= at {
			end = code[0].end
		}
		if next < len(sorted) {
			end = min(end, sorted[next].Address)
		}
		isLabel := at < covered
		for _, f := range sorted[i:next] {
			switch {
			case f.Size != 0:
				covered = max(covered, f.Address+f.Size) // one that wraps covers nothing
			case isSized || isLabel || end <= at:
				continue
			default:
				f.Size = end - at
			}
			out = append(out, f)
		}
		i = next
	}
	return out
}

// extent is a range of addresses.
type extent struct{ start, end uint64 }

// code is where instructions are, by address: in sections, or else in segments.
func (m *Module) code() (all []extent) {
	sections, _ := m.sections() // without them, segments are all there is
	for _, s := range sections {
		if s.flags&uint64(elf.SHF_EXECINSTR) != 0 && s.addr+s.size > s.addr {
			all = append(all, extent{s.addr, s.addr + s.size})
		}
	}
	if all == nil {
		for _, l := range m.loads {
			if l.exec {
				all = append(all, extent{l.addr, l.addr + l.filesz})
			}
		}
	}
	slices.SortFunc(all, func(a, b extent) int { return cmp.Compare(a.start, b.start) })
	return all
}
