// SPDX-License-Identifier: Apache-2.0

// Package symbols gives names to what the kernel recorded as numbers: native
// addresses become functions of libraries, symbol ids become Python functions,
// and both together a stack.Stack. It is pure except for the files it is given to
// read; what it remembers is bounded.
package symbols

import (
	"bytes"
	"compress/flate"
	"errors"
	"fmt"
	"io"
	"math"
	"sort"
	"strings"

	"github.com/gpu-gadgets/gpu-gadgets/internal/elf/module"
)

const (
	// blockNames and blockBytes are how many names are compressed together: more compress better, fewer are quicker to look up.
	blockNames = 64
	blockBytes = 64 << 10
	// maxBlockBytes bounds what one block of names may unpack to: it ends with the name that reaches blockBytes.
	maxBlockBytes int64 = blockBytes + maxMangled + int64(len(cutMark)) + 1
	// cutMark stands for the rest of a name that is longer than maxMangled, which would not be demangled anyway.
	cutMark = "…"
)

// Table is the functions of one module in little memory: libtorch has about
// 200,000 with 30 MiB of names, of which one stack needs a few. Addresses are
// offsets from the lowest; names, which mangling makes long and alike, are
// compressed in blocks in the order of their addresses.
//
// A Table is read-only, so it may be used concurrently.
type Table struct {
	base  uint64
	start []uint32 // offset from base, ascending and unique
	size  []uint32 // bytes; 0: not known, reaches to the next function
	names []byte
	block []uint32 // where each block of names starts in names, and the end
	first []uint32 // function of each block
}

// NewTable packs functions, which must be sorted by address, the best name of
// an address first, as module.Functions returns them.
func NewTable(functions []module.Symbol) (*Table, error) {
	t := &Table{}
	if len(functions) == 0 {
		return t, nil
	}
	t.base = functions[0].Address
	packer, err := flate.NewWriter(io.Discard, flate.BestSpeed)
	if err != nil {
		return nil, fmt.Errorf("pack symbols: %w", err)
	}

	var packed, plain bytes.Buffer
	begun := 0 // the first function whose name is in plain
	flush := func() error {
		t.block, t.first = append(t.block, uint32(packed.Len())), append(t.first, uint32(begun))
		begun = len(t.start)
		packer.Reset(&packed)
		if _, err := packer.Write(plain.Bytes()); err != nil {
			return err
		}
		plain.Reset()
		return packer.Close()
	}
	for _, f := range functions {
		offset := f.Address - t.base
		if f.Address < t.base || offset > math.MaxUint32 {
			continue // 4 GiB of code: no
		}
		if n := len(t.start); n > 0 && t.start[n-1] >= uint32(offset) {
			continue // another name of the same address
		}
		if len(t.start)-begun == blockNames || plain.Len() >= blockBytes {
			if err := flush(); err != nil {
				return nil, fmt.Errorf("pack symbols: %w", err)
			}
		}
		t.start = append(t.start, uint32(offset))
		t.size = append(t.size, uint32(min(f.Size, math.MaxUint32)))
		plain.WriteString(cutName(f.Name))
		plain.WriteByte(0)
	}
	if err := flush(); err != nil {
		return nil, fmt.Errorf("pack symbols: %w", err)
	}
	if packed.Len() > math.MaxUint32 {
		return nil, errors.New("pack symbols: more than 4 GiB of names")
	}
	t.block = append(t.block, uint32(packed.Len()))
	// Without the room that growing left over.
	t.names = bytes.Clone(packed.Bytes())
	t.start = append([]uint32(nil), t.start...)
	t.size = append([]uint32(nil), t.size...)
	return t, nil
}

// Lookup is the mangled name of the function that holds an address of the
// module's own numbering.
func (t *Table) Lookup(address uint64) (string, bool) {
	if address < t.base || address-t.base > math.MaxUint32 {
		return "", false
	}
	offset := uint32(address - t.base)
	i := sort.Search(len(t.start), func(i int) bool { return t.start[i] > offset }) - 1
	if i < 0 {
		return "", false
	}
	// Assembler labels inside a function hide it: check a few before.
	for j := i; j >= 0 && j > i-4; j-- {
		if size := t.size[j]; offset-t.start[j] < size || (size == 0 && j == i) {
			return t.name(j)
		}
	}
	return "", false
}

// cutName is a name, or the beginning of a long one.
func cutName(name string) string {
	if len(name) <= maxMangled {
		return name
	}
	return strings.ToValidUTF8(name[:maxMangled], "") + cutMark
}

func (t *Table) name(i int) (string, bool) {
	b := sort.Search(len(t.first), func(b int) bool { return int(t.first[b]) > i }) - 1
	r := flate.NewReader(bytes.NewReader(t.names[t.block[b]:t.block[b+1]]))
	plain, err := io.ReadAll(io.LimitReader(r, maxBlockBytes))
	if err != nil {
		return "", false
	}
	for range i - int(t.first[b]) {
		_, plain, _ = bytes.Cut(plain, []byte{0})
	}
	name, _, ok := bytes.Cut(plain, []byte{0})
	return string(name), ok && len(name) > 0
}

// Len is the number of functions.
func (t *Table) Len() int { return len(t.start) }

// Bytes is about how much memory the table takes.
func (t *Table) Bytes() int {
	return cap(t.names) + 4*(cap(t.start)+cap(t.size)+cap(t.block)+cap(t.first))
}
