// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// Encodings of pointers (DW_EH_PE_*).
const (
	encodingUnsigned2    = 0x02
	encodingUnsigned4    = 0x03
	encodingUnsigned8    = 0x04
	encodingSigned2      = 0x0a
	encodingSigned4      = 0x0b
	encodingSigned8      = 0x0c
	encodingFormat       = 0x0f
	encodingPCRelative   = 0x10
	encodingDataRelative = 0x30
	encodingApplication  = 0x70
	encodingIndirect     = 0x80
)

// cie has the properties that the functions of a file have in common.
type cie struct {
	codeAlign uint64
	dataAlign int64
	register  uint64 // of the return address
	pointers  byte   // encoding of addresses
	augmented bool   // FDEs have augmentation data
	signal    bool
	program   []byte
}

// fde is the rules of one function.
type fde struct {
	*cie
	begin, end uint64
	program    []byte
}

// body is a CIE or an FDE of at most so many bytes, without its length.
func (f *File) body(at uint64, most uint32) ([]byte, error) {
	b, err := f.view(at, 4)
	if err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint32(b)
	if n < 4 || n > most { // 0: the end; 0xffffffff: the 64-bit form, for sections above 4 GiB
		return nil, fmt.Errorf("%w: an entry of %d bytes", ErrMalformed, n)
	}
	return f.view(at+4, int(n))
}

// fde reads the FDE at an address. It is valid until the file is read again.
func (f *File) fde(at uint64) (fde, error) {
	b, err := f.body(at, maxEntryBytes)
	if err != nil {
		return fde{}, err
	}
	back := uint64(binary.LittleEndian.Uint32(b))
	if back == 0 {
		return fde{}, fmt.Errorf("%w: a CIE where an FDE should be", ErrMalformed)
	}
	common, err := f.cie(at + 4 - back)
	if err != nil {
		return fde{}, err
	}
	if b, err = f.body(at, maxEntryBytes); err != nil { // the CIE may have moved the window
		return fde{}, err
	}
	e := fde{cie: common}
	c := cursor{b: b[4:], addr: at + 8, header: f.header}
	e.begin = c.pointer(common.pointers)
	e.end = e.begin + c.pointer(common.pointers&encodingFormat)
	if common.augmented {
		c.skip(c.uleb())
	}
	e.program = c.b
	return e, c.err
}

// cie reads the CIE at an address.
func (f *File) cie(at uint64) (*cie, error) {
	if known := f.cies[at]; known != nil {
		return known, nil
	}
	b, err := f.body(at, maxCIEBytes)
	if err != nil {
		return nil, err
	}
	if binary.LittleEndian.Uint32(b) != 0 {
		return nil, fmt.Errorf("%w: an FDE where a CIE should be", ErrMalformed)
	}
	e := &cie{}
	c := cursor{b: b[4:], addr: at + 8, header: f.header}
	version := c.byte()
	if version != 1 && version != 3 && version != 4 {
		return nil, fmt.Errorf("%w: a CIE of version %d", ErrMalformed, version)
	}
	augmentation := c.text()
	if version == 4 {
		c.skip(2) // the sizes of addresses and of segments
	}
	e.codeAlign, e.dataAlign = c.uleb(), c.sleb()
	if version == 1 {
		e.register = uint64(c.byte())
	} else {
		e.register = c.uleb()
	}
	if err := e.augment(&c, augmentation); err != nil {
		return nil, err
	}
	e.program = bytes.Clone(c.b)
	if c.err == nil && len(f.cies) < maxCIEs {
		f.cies[at] = e
	}
	return e, c.err
}

// augment reads the augmentation data.
func (e *cie) augment(c *cursor, letters string) error {
	if letters == "" {
		return nil
	}
	if letters[0] != 'z' {
		return fmt.Errorf("%w: augmentation %q", ErrMalformed, letters)
	}
	e.augmented = true
	n := c.uleb()
	if n > uint64(len(c.b)) {
		return fmt.Errorf("%w: %d bytes of augmentation", ErrMalformed, n)
	}
	data := cursor{b: c.b[:n], addr: c.addr, header: c.header}
	c.skip(n)
	for _, letter := range letters[1:] {
		switch letter {
		case 'R':
			e.pointers = data.byte()
		case 'P': // of exceptions
			data.pointer(data.byte() &^ encodingIndirect)
		case 'L':
			data.byte()
		case 'S':
			e.signal = true
		case 'B', 'G': // arm64: which key signs, and memory tags; both without data
		default:
			return data.err // the length said where the rest begins
		}
	}
	return data.err
}
