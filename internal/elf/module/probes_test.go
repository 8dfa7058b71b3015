// SPDX-License-Identifier: Apache-2.0

package module

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
)

// withProbes is a library with a section of notes, one for each text: the strings of a
// probe at 0x1010 whose semaphore is at 0x2008. The section .stapsdt.base was at 0x300
// and is 0x10 behind that now.
func withProbes(texts ...[]byte) *builder {
	var notes []byte
	for _, text := range texts {
		desc := binary.LittleEndian.AppendUint64(nil, 0x1000)
		desc = binary.LittleEndian.AppendUint64(desc, 0x300)
		desc = append(binary.LittleEndian.AppendUint64(desc, 0x1ff8), text...)
		notes = binary.LittleEndian.AppendUint32(notes, 8)
		notes = binary.LittleEndian.AppendUint32(notes, uint32(len(desc)))
		notes = append(binary.LittleEndian.AppendUint32(notes, 3), "stapsdt\x00"...)
		notes = append(notes, desc...)
		for len(notes)%4 != 0 {
			notes = append(notes, 0)
		}
	}
	const at = 0x400
	names := "\x00.note.stapsdt\x00.stapsdt.base\x00"
	f := newBuilder().programs(2).
		program(0, elf.PT_LOAD, elf.PF_R|elf.PF_X, 0, 0x1000, 0x800, 0x800).
		program(1, elf.PT_LOAD, elf.PF_R|elf.PF_W, 0x100, 0x2000, 0x10, 0x100)
	f.grow(at)
	f.b = append(f.b[:at], notes...)
	f.b = append(f.b, names...)
	for len(f.b)%8 != 0 || len(f.b) < sectionsAt {
		f.b = append(f.b, 0)
	}
	section := func(name string, typ elf.SectionType, addr, off, size uint64) {
		var h [sectionSize]byte
		le := binary.LittleEndian
		le.PutUint32(h[:], uint32(bytes.Index([]byte(names), []byte(name+"\x00"))))
		le.PutUint32(h[4:], uint32(typ))
		le.PutUint64(h[16:], addr)
		le.PutUint64(h[24:], off)
		le.PutUint64(h[32:], size)
		f.b = append(f.b, h[:]...)
	}
	begin := len(f.b)
	section("", elf.SHT_STRTAB, 0, at+uint64(len(notes)), uint64(len(names)))
	section(".note.stapsdt", elf.SHT_NOTE, 0, at, uint64(len(notes)))
	section(".stapsdt.base", elf.SHT_PROGBITS, 0x310, 0, 1)
	return f.u64(40, uint64(begin)).u16(58, sectionSize).u16(60, 3).u16(62, 0)
}

func probesOf(t *testing.T, f *builder, provider string) ([]Probe, *Module, error) {
	t.Helper()
	m, err := Open(bytes.NewReader(f.b), int64(len(f.b)))
	require.NoError(t, err)
	probes, err := m.Probes(provider)
	return probes, m, err
}

// TestProbesAreThoseOfTheProvider, where the section of their notes is now.
func TestProbesAreThoseOfTheProvider(t *testing.T) {
	probes, m, err := probesOf(t, withProbes([]byte("p\x00one\x008@%rax\x00"), []byte("q\x00two\x00\x00"), []byte("p\x00three\x00\x00")), "p")
	require.NoError(t, err)
	require.Equal(t, []Probe{
		{Provider: "p", Name: "one", Arguments: "8@%rax", Address: 0x1010, Semaphore: 0x2008},
		{Provider: "p", Name: "three", Address: 0x1010, Semaphore: 0x2008},
	}, probes)
	off, ok := m.WritableOffset(0x2008)
	require.True(t, ok)
	require.EqualValues(t, 0x108, off)
	for _, addr := range []uint64{0x1010, 0x2010, 0x3000} { // code; memory without a file; nothing
		_, ok := m.WritableOffset(addr)
		require.False(t, ok)
	}
	probes, _, err = probesOf(t, newBuilder(), "p")
	require.NoError(t, err)
	require.Empty(t, probes)
}

// TestHostileProbes are errors, and no probes.
func TestHostileProbes(t *testing.T) {
	long := bytes.Repeat([]byte("x"), maxProbeText+1)
	for name, text := range map[string][]byte{
		"no end": []byte("p"), "no name": []byte("p\x00"), "no arguments": []byte("p\x00n\x00"),
		"long": append(append([]byte("p\x00n\x00"), long...), 0),
	} {
		probes, _, err := probesOf(t, withProbes(text), "p")
		require.ErrorIs(t, err, ErrMalformed, name)
		require.Nil(t, probes)
	}
	cut := withProbes([]byte("p\x00n\x00\x00"))
	cut.u32(0x400+4, 1<<30) // of the description
	_, _, err := probesOf(t, cut, "p")
	require.ErrorIs(t, err, ErrMalformed)
}
