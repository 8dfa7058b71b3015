// SPDX-License-Identifier: Apache-2.0

package unwinder

import (
	"slices"

	"golang.org/x/sys/unix"

	"github.com/gpu-gadgets/gpu-gadgets/internal/elf/unwind"
)

// Sizes of bpf/stack/rules.h.
const (
	pageBits  = 10
	pageBytes = 1 << pageBits
	maxRows   = 64
	maxRules  = 16
	maxParts  = 8
	begins    = 0x80 // in RuleOf: UNWIND_BEGINS
)

// Key is struct unwind_page_key: a part of a page of a file.
type Key struct {
	Inode   uint64
	Bytes   uint64
	Device  uint32 // as the kernel encodes it
	Page    uint32
	Part    uint32
	Changed uint32 // changed() of its ctime
}

// changed is UNWIND_CHANGED(): a file that is rewritten is another one.
func changed(st *unix.Stat_t) uint32 { return uint32(st.Ctim.Sec)*0x9e3779b1 + uint32(st.Ctim.Nsec) }

// file is the key of all pages of the same file.
func (k Key) file() Key {
	k.Page, k.Part = 0, 0
	return k
}

// Miss is struct unwind_miss: a page that a walk has met and that was not there.
type Miss struct {
	Key     Key
	Start   uint64 // of the mapping
	Address uint64 // in it
	SP      uint64 // above it are the frames of the callers
	TGID    uint32
	_       uint32
}

// Page is struct unwind_page.
type Page struct {
	Used   uint32
	Rows   uint8
	Parts  uint8
	Starts [maxParts - 1]uint16
	At     [maxRows]uint16
	RuleOf [maxRows]uint8
	Rules  [maxRules]unwind.Rule
}

// onePage is a page with the same rule everywhere.
func onePage(kind unwind.Kind) []Page {
	p := Page{Rows: 1, Parts: 1}
	p.Rules[0].Kind = kind
	return []Page{p}
}

// encode makes the parts of the page that begins at an offset of its file. One with more rows
// than fit into all parts, which no compiler makes, has none.
func encode(rows []unwind.Row, begin uint64) []Page {
	var parts []Page
	var p *Page
	used := 0 // rules of p
	for _, r := range rows {
		i := -1
		if p != nil {
			i = slices.Index(p.Rules[:used], r.Rule)
		}
		if p == nil || p.Rows == maxRows || (i < 0 && used == maxRules) {
			if len(parts) == maxParts {
				return onePage(unwind.None)
			}
			parts = append(parts, Page{})
			p, i, used = &parts[len(parts)-1], -1, 0
		}
		if i < 0 {
			i = used
			p.Rules[i] = r.Rule
			used++
		}
		p.At[p.Rows], p.RuleOf[p.Rows] = uint16(r.Offset-begin), uint8(i)
		if r.Begins {
			p.RuleOf[p.Rows] |= begins
		}
		p.Rows++
	}
	if len(parts) == 0 {
		return onePage(unwind.None)
	}
	parts[0].Parts = uint8(len(parts))
	for i, next := range parts[1:] {
		parts[0].Starts[i] = next.At[0]
		parts[i+1].Parts = 1
	}
	return parts
}
