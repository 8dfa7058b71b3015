// SPDX-License-Identifier: Apache-2.0

package module

import (
	"cmp"
	"debug/elf"
	"slices"
	"sync"

	"github.com/gpu-gadgets/gpu-gadgets/internal/elf/unwind"
)

// bounded gives every function a size, in place, and leaves out labels inside of others.
// Functions are sorted by address.
func (m *Module) bounded(sorted []Symbol) []Symbol {
	code := m.code()
	starts := sync.OnceValue(m.starts)
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
				f.Size = after(starts(), at, end) - at
			}
			out = append(out, f)
		}
		i = next
	}
	return out
}

// starts are where functions begin by the file's unwind information, which stripped files have, too.
func (m *Module) starts() []uint64 {
	if m.r == nil {
		return nil
	}
	f, err := unwind.Open(m.r, m.size)
	if err != nil {
		return nil
	}
	return f.Starts()
}

// after is the first of starts behind an address, end at most.
func after(starts []uint64, at, end uint64) uint64 {
	i, _ := slices.BinarySearch(starts, at+1)
	if i < len(starts) && starts[i] > at {
		return min(end, starts[i])
	}
	return end
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
