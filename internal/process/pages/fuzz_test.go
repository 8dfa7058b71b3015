// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"
)

// image is the memory of a process that has what a fuzzer wrote at 0x1000, and counts reads.
type image struct {
	b     []byte
	reads int
}

const imageAt = 0x1000

func (i *image) ReadAt(to []byte, at int64) (int, error) {
	i.reads++
	if at < imageAt || at+int64(len(to)) > imageAt+int64(len(i.b)) {
		return 0, errors.New("bad address")
	}
	return copy(to, i.b[at-imageAt:]), nil
}

// Whatever a process has put where its dynamic linker keeps its lists, the search ends: the
// longest has maxModules modules with as many symbols as there are names.
func FuzzSearch(f *testing.F) {
	words := func(size int, memory map[int][]uint64) []byte {
		b := make([]byte, size)
		for at, values := range memory {
			for n, v := range values {
				binary.LittleEndian.PutUint64(b[at+8*n:], v)
			}
		}
		return b
	}
	auxv := words(48, map[int][]uint64{0: {atHeaders, imageAt, atHeaderCount, 2}})
	// A list of modules that is a circle; its module has one symbol, which is not defined.
	f.Add(auxv, words(0x700, map[int][]uint64{
		0x000: {ptPhdr, 0, imageAt, 0, 0, 0, 0, ptDynamic, 0, imageAt + 0x200},
		0x200: {dtDebug, imageAt + 0x300, 0, 0},
		0x308: {imageAt + 0x380},
		0x380: {0, 0, imageAt + 0x400, imageAt + 0x380},
		0x400: {dtHash, imageAt + 0x500, dtSymbols, imageAt + 0x600, dtStrings, imageAt + 0x680, 0, 0},
		0x500: {1, 0<<32 | 1, ^uint64(0), 0},
	}))
	f.Add(auxv, []byte{})
	f.Fuzz(func(t *testing.T, auxv, memoryBytes []byte) {
		of := &image{b: bytes.Clone(memoryBytes)}
		m := &memory{file: of}
		found := m.python(auxv)
		most := maxHeaders + 2 + maxModules*(1+maxDynamic+(1+len(versions))*(3+3*maxChain))
		if of.reads > most {
			t.Fatalf("%d reads, more than %d", of.reads, most)
		}
		if found != 0 && of.reads < 4 {
			t.Fatalf("found at %#x without a look", found)
		}
	})
}
