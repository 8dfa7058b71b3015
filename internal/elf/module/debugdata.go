// SPDX-License-Identifier: Apache-2.0

package module

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/ulikunitz/xz/lzma"
)

// debugdata reads symbols of .gnu_debugdata: an xz-compressed ELF file with
// the functions that strip took from .symtab. It is not searched for inside
// itself.
func (m *Module) debugdata(sections []section, is isWanted) ([]symbol, error) {
	s, ok := m.sectionNamed(sections, elf.SHT_PROGBITS, ".gnu_debugdata")
	if !ok || s.size == 0 || s.size > maxDebugdata {
		return nil, nil
	}
	packed, err := m.bytes(s.off, s.size)
	if err != nil {
		return nil, fmt.Errorf("read .gnu_debugdata: %w", err)
	}
	plain, err := unxz(packed, maxDebugdata)
	if err != nil {
		return nil, fmt.Errorf("decompress .gnu_debugdata: %w", err)
	}
	inner, err := Open(bytes.NewReader(plain), int64(len(plain)))
	if err != nil {
		return nil, fmt.Errorf("open .gnu_debugdata: %w", err)
	}
	symbols, err := inner.static(is)
	if err != nil {
		return nil, fmt.Errorf("open .gnu_debugdata: %w", err)
	}
	return symbols, nil
}

// static reads symbols of .symtab alone; none without one.
func (m *Module) static(is isWanted) ([]symbol, error) {
	all, err := m.sections()
	if err != nil {
		return nil, err
	}
	symtab, ok := firstOf(all, elf.SHT_SYMTAB)
	if !ok {
		return nil, nil
	}
	t, err := sectionTable(all, symtab)
	if err != nil {
		return nil, err
	}
	t.rank = rankStatic
	return m.readTable(t, is, nil)
}

var errXZ = errors.New("unsupported or malformed xz data")

// unxz decompresses one xz stream into at most limit bytes.
//
// The container is read here, by the .xz file format specification 1.2.1, and
// only the LZMA2 data by the library: the library allocates the dictionary that
// a block header asks for, up to 4 GiB. No dictionary needs to be larger than
// the output, and all of them together may take twice as much: an empty block of 16 bytes may ask for the
// largest. Checksums are not verified: the symbols are bounded anyway.
func unxz(b []byte, limit int) ([]byte, error) {
	const header = 12
	if len(b) < header || string(b[:6]) != "\xfd7zXZ\x00" || b[6] != 0 || b[7] > 15 {
		return nil, errXZ
	}
	// Section 2.1.1.2: the size of the check after each block, by its id.
	check := []int{0, 4, 4, 4, 8, 8, 8, 16, 16, 16, 32, 32, 32, 64, 64, 64}[b[7]]
	r := bytes.NewReader(b[header:])
	var out bytes.Buffer
	for dictionaries := 0; ; {
		first, err := r.ReadByte()
		if err != nil {
			return nil, errXZ
		}
		if first == 0 { // the index: no more blocks
			return out.Bytes(), nil
		}
		h := make([]byte, 4*(int(first)+1)-1)
		if _, err := io.ReadFull(r, h); err != nil {
			return nil, errXZ
		}
		dictionary, err := blockDictionary(h)
		if err != nil {
			return nil, err
		}
		size := int(max(lzma.MinDictCap, min(dictionary, int64(limit))))
		if dictionaries += size; dictionaries > max(2*limit, lzma.MinDictCap) {
			return nil, &LimitError{"bytes of dictionaries", uint64(dictionaries), uint64(2 * limit)}
		}
		before := r.Len()
		lr, err := lzma.Reader2Config{DictCap: size}.NewReader2(r)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errXZ, err)
		}
		if _, err := io.Copy(&out, io.LimitReader(lr, int64(limit-out.Len()+1))); err != nil {
			return nil, fmt.Errorf("%w: %w", errXZ, err)
		}
		if out.Len() > limit {
			return nil, &LimitError{"bytes decompressed", uint64(out.Len()), uint64(limit)}
		}
		padding := -(before - r.Len()) & 3
		if _, err := r.Seek(int64(padding+check), io.SeekCurrent); err != nil {
			return nil, errXZ
		}
	}
}

// blockDictionary returns the dictionary size in bytes of a block whose only
// filter is LZMA2. h is the block header (section 3.1) after its first byte.
func blockDictionary(h []byte) (int64, error) {
	if len(h) < 8 {
		return 0, errXZ
	}
	flags, h := h[0], h[1:]
	if flags&0x3f != 0 { // several filters, or reserved bits
		return 0, errXZ
	}
	for _, present := range []byte{0x40, 0x80} { // compressed, uncompressed size
		if flags&present != 0 {
			_, n := binary.Uvarint(h)
			if n <= 0 {
				return 0, errXZ
			}
			h = h[n:]
		}
	}
	const lzma2 = 0x21
	if len(h) < 3 || h[0] != lzma2 || h[1] != 1 || h[2] > 40 {
		return 0, errXZ
	}
	if h[2] == 40 {
		return 1<<32 - 1, nil
	}
	return int64(2|h[2]&1) << (h[2]/2 + 11), nil
}
