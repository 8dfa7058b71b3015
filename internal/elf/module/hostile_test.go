// SPDX-License-Identifier: Apache-2.0

package module

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// builder writes an ELF file field by field; the zero value of a field is what
// a well-formed file has.
type builder struct{ b []byte }

func newBuilder() *builder {
	f := &builder{make([]byte, 64)}
	copy(f.b, "\x7fELF\x02\x01\x01")
	f.u16(16, uint16(elf.ET_DYN)).u16(18, uint16(elf.EM_X86_64)).u16(54, 56).u16(58, 64)
	return f
}

func (f *builder) grow(n int) {
	if n > len(f.b) {
		f.b = append(f.b, make([]byte, n-len(f.b))...)
	}
}
func (f *builder) u16(at int, v uint16) *builder {
	f.grow(at + 2)
	binary.LittleEndian.PutUint16(f.b[at:], v)
	return f
}
func (f *builder) u32(at int, v uint32) *builder {
	f.grow(at + 4)
	binary.LittleEndian.PutUint32(f.b[at:], v)
	return f
}
func (f *builder) u64(at int, v uint64) *builder {
	f.grow(at + 8)
	binary.LittleEndian.PutUint64(f.b[at:], v)
	return f
}

// programs says that n program headers are at 64.
func (f *builder) programs(n uint16) *builder { return f.u64(32, 64).u16(56, n) }

func (f *builder) program(i int, typ elf.ProgType, flags elf.ProgFlag, off, addr, filesz, memsz uint64) *builder {
	at := 64 + 56*i
	return f.u32(at, uint32(typ)).u32(at+4, uint32(flags)).u64(at+8, off).u64(at+16, addr).
		u64(at+32, filesz).u64(at+40, memsz).u64(at+48, 1)
}

const sectionsAt = 1024

func (f *builder) sections(n uint16) *builder { return f.u64(40, sectionsAt).u16(60, n) }

func (f *builder) sectionAt(i int, typ elf.SectionType, link uint32, off, size uint64) *builder {
	at := sectionsAt + 64*i
	return f.u32(at+4, uint32(typ)).u64(at+24, off).u64(at+32, size).u32(at+40, link).grown(at + 64)
}
func (f *builder) grown(n int) *builder { f.grow(n); return f }

// dynamic puts an entry into the dynamic segment at 512.
func (f *builder) dyn(i int, tag elf.DynTag, v uint64) *builder {
	return f.u64(512+16*i, uint64(tag)).u64(512+16*i+8, v)
}

// withDynamic is a file whose first KiB is mapped at 0, code included.
func withDynamic() *builder {
	return newBuilder().programs(2).
		program(0, elf.PT_LOAD, elf.PF_R|elf.PF_X, 0, 0, 4096, 4096).
		program(1, elf.PT_DYNAMIC, elf.PF_R, 512, 512, 256, 256).grown(4096)
}

// sparse is a file of any size whose first bytes are data and the rest zero.
type sparse struct {
	data []byte
	size int64
}

func (s sparse) ReadAt(p []byte, off int64) (int, error) {
	clear(p)
	if off < int64(len(s.data)) {
		copy(p, s.data[off:])
	}
	if off+int64(len(p)) > s.size {
		return int(max(0, s.size-off)), io.EOF
	}
	return len(p), nil
}

// hostileFiles are files that a process could map to harm its observer.
func hostileFiles() map[string]sparse {
	of := func(f *builder) sparse { return sparse{f.b, int64(len(f.b))} }
	return map[string]sparse{
		"empty":                  {nil, 0},
		"shorter than a header":  {[]byte("\x7fELF\x02\x01"), 6},
		"text":                   {[]byte(strings.Repeat("#!/bin/sh\n", 20)), 200},
		"32 bits":                of(newBuilder().u16(4, 0x0101)),
		"big-endian":             of(newBuilder().u16(4, 0x0202)),
		"object file":            of(newBuilder().u16(16, uint16(elf.ET_REL))),
		"program headers beyond": of(newBuilder().u64(32, 1<<40).u16(56, 3)),
		"program headers wrap":   of(newBuilder().u64(32, ^uint64(0)-8).u16(56, 3)),
		"65535 program headers":  of(newBuilder().programs(0xffff)),
		"4 billion program headers": of(newBuilder().programs(0xffff).sections(1).
			sectionAt(0, 0, 0, 0, 0).u32(sectionsAt+44, ^uint32(0))),
		"program headers of 1 byte": of(newBuilder().programs(1).u16(54, 1).grown(256)),
		"segment wraps":             of(newBuilder().programs(1).program(0, elf.PT_LOAD, elf.PF_X, 0, ^uint64(0)-10, 100, 100)),
		"segment larger than memory": of(newBuilder().programs(1).
			program(0, elf.PT_LOAD, elf.PF_X, 0, 0, 1<<40, 4096)),
		"sections beyond":      of(newBuilder().u64(40, 1<<50).u16(60, 10)),
		"sections wrap":        of(newBuilder().u64(40, ^uint64(0)-64).u16(60, 10)),
		"65535 sections":       of(newBuilder().sections(0xffff).grown(2048)),
		"2^60 sections":        {newBuilder().sections(0).sectionAt(0, 0, 0, 0, 1<<60).b, 4 << 30},
		"131072 empty tables":  {newBuilder().sections(0).sectionAt(0, elf.SHT_SYMTAB, 0, 0, 1<<17).b, 4 << 30},
		"strings of nowhere":   of(newBuilder().sections(1).sectionAt(0, elf.SHT_SYMTAB, 77, 0, 240)),
		"strings of itself":    of(newBuilder().sections(1).sectionAt(0, elf.SHT_SYMTAB, 0, 0, 240)),
		"symbols beyond":       of(newBuilder().sections(1).sectionAt(0, elf.SHT_DYNSYM, 0, 1<<30, 240)),
		"4 GiB of symbols":     {newBuilder().sections(1).sectionAt(0, elf.SHT_SYMTAB, 0, 0, 4<<30).b, 4 << 30},
		"4 GiB of names":       {newBuilder().sections(2).sectionAt(0, elf.SHT_SYMTAB, 1, 0, 240).sectionAt(1, elf.SHT_STRTAB, 0, 0, 4<<30).b, 4 << 30},
		"48 MiB of no symbols": {newBuilder().sections(2).sectionAt(0, elf.SHT_SYMTAB, 1, 1<<20, 48<<20).sectionAt(1, elf.SHT_STRTAB, 0, 1<<20, 128<<20).b, 4 << 30},
		"a note that wraps":    of(newBuilder().programs(1).program(0, elf.PT_NOTE, 0, 256, 0, 64, 64).u32(256, ^uint32(0)).u32(260, ^uint32(0)).u32(264, 3).grown(512)),
		"4 GiB of notes":       {newBuilder().programs(1).program(0, elf.PT_NOTE, 0, 0, 0, 4<<30, 4<<30).b, 4 << 30},
		"dynamic beyond":       of(newBuilder().programs(1).program(0, elf.PT_DYNAMIC, 0, 1<<40, 0, 256, 256)),
		"dynamic, no table":    of(withDynamic()),
		"dynamic, all unmapped": of(withDynamic().dyn(0, elf.DT_SYMTAB, 1<<40).dyn(1, elf.DT_STRTAB, 1<<40).
			dyn(2, elf.DT_HASH, 1<<40)),
		"hash of 4 billion symbols": of(withDynamic().dyn(0, elf.DT_SYMTAB, 0).dyn(1, elf.DT_STRTAB, 64).
			dyn(2, elf.DT_STRSZ, 100).dyn(3, elf.DT_HASH, 800).u32(804, ^uint32(0))),
		"gnu hash of 4 billion buckets": of(withDynamic().dyn(0, elf.DT_SYMTAB, 0).dyn(1, elf.DT_STRTAB, 64).
			dyn(2, elf.DT_STRSZ, 100).dyn(3, elf.DT_GNU_HASH, 800).u32(800, ^uint32(0))),
		"gnu hash without end": {newBuilder().programs(2).
			program(0, elf.PT_LOAD, elf.PF_X, 0, 0, 4<<30, 4<<30).
			program(1, elf.PT_DYNAMIC, 0, 512, 512, 256, 256).
			dyn(0, elf.DT_SYMTAB, 0).dyn(1, elf.DT_STRTAB, 64).dyn(2, elf.DT_STRSZ, 100).
			dyn(3, elf.DT_GNU_HASH, 800).u32(800, 1).u32(816, 1).b, 4 << 30},
		"many symbols, one long name": longNames(),
	}
}

// longNames: every symbol has the same name of 16 KiB.
func longNames() sparse {
	const symbols, names = 1 << 20, 20 << 10
	f := newBuilder().sections(2).
		sectionAt(0, elf.SHT_SYMTAB, 1, 4096+names, symbols*symbolSize).
		sectionAt(1, elf.SHT_STRTAB, 0, 4096, names).grown(4096 + names + symbols*symbolSize)
	for i := range 16000 {
		f.b[4096+i] = 'x'
	}
	for i := range symbols {
		at := 4096 + names + i*symbolSize
		f.b[at+4] = byte(elf.STT_FUNC)
		f.b[at+6] = 1
		f.b[at+8] = 1
	}
	return sparse{f.b, int64(len(f.b))}
}

func TestHostileFiles(t *testing.T) {
	for name, file := range hostileFiles() {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			begin := processorTime(t)
			m, err := Open(file, file.size)
			if err == nil {
				_, err = m.Functions(nil)
				_, _ = m.Pointers(nil)
				_, err2 := m.Lookup([]string{"f"})
				if err == nil {
					err = err2
				}
				_, _ = m.Code(0, 1<<30)
				_, _ = m.FileOffset(^uint64(0))
				_, _ = m.Address(^uint64(0))
				_, err3 := m.ThreadLocal("v")
				require.Error(t, err3)
			}
			require.Error(t, err)
			known := false
			for _, e := range []error{ErrNotELF, ErrUnsupported, ErrMalformed, ErrNoSymbols} {
				known = known || errors.Is(err, e)
			}
			require.True(t, known, "untyped error %v", err)
			require.NotContains(t, err.Error(), "\n")
			runtime.ReadMemStats(&after)
			// Three times: Functions, Pointers and Lookup; strings and symbols at their limits.
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(3*(maxStringBytes*2+maxSymbols*symbolSize*2)))
			require.Less(t, processorTime(t)-begin, 5*time.Second)
		})
	}
}

// processorTime is this process's, which does not depend on who else runs.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var u unix.Rusage
	require.NoError(t, unix.Getrusage(unix.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func TestLimitErrorSaysWhat(t *testing.T) {
	_, err := Open(hostileFiles()["65535 program headers"], 1<<20)
	var limit *LimitError
	require.ErrorAs(t, err, &limit)
	require.Equal(t, "65535 program headers, more than 1024", limit.Error())
}

// TestAFileThatShrinks: the reader ends before the size that was stated.
func TestAFileThatShrinks(t *testing.T) {
	b := withDynamic().b
	_, err := Open(bytes.NewReader(b[:100]), int64(len(b)))
	require.ErrorIs(t, err, ErrMalformed)
}

func TestXZ(t *testing.T) {
	// 100 zero bytes by xz 5.4 -9, whose block asks for a dictionary of 64 MiB.
	packed, err := os.ReadFile(filepath.Join("testdata", "zeros.xz"))
	require.NoError(t, err)
	out, err := unxz(packed, 1000)
	require.NoError(t, err)
	require.Equal(t, make([]byte, 100), out)

	_, err = unxz(packed, 99)
	var limit *LimitError
	require.ErrorAs(t, err, &limit)

	huge := bytes.Clone(packed)
	require.Equal(t, byte(0x21), huge[14], "filter id")
	huge[16] = 40 // 4 GiB: not allocated, so not noticed
	out, err = unxz(huge, 1000)
	require.NoError(t, err)
	require.Len(t, out, 100)

	for n := range packed[:len(packed)-30] {
		_, err := unxz(packed[:n], 1000)
		require.Error(t, err, "cut at %d", n)
	}
}

// An empty block of 16 bytes may ask for a dictionary of 64 MiB, and a file may have millions of them.
func TestDictionariesOfXZAreBounded(t *testing.T) {
	packed, err := os.ReadFile(filepath.Join("testdata", "zeros.xz"))
	require.NoError(t, err)
	blocks := func(count int, dictionary byte) []byte {
		b := bytes.Clone(packed[:12])
		b[7] = 0 // without checks
		for range count {
			b = append(b, 2, 0, 0x21, 1, dictionary, 0, 0, 0, 0, 0, 0, 0) // a header of 12 bytes
			b = append(b, 0, 0, 0, 0)                                     // the end of LZMA2 data, and padding
		}
		return append(b, 0)
	}
	_, err = unxz(blocks(70_000, 28), maxDebugdata)
	var limit *LimitError
	require.ErrorAs(t, err, &limit)
	require.Equal(t, uint64(3*maxDebugdata), limit.Got)

	out, err := unxz(blocks(100, 0), maxDebugdata) // 4 KiB each
	require.NoError(t, err)
	require.Empty(t, out)
}

func FuzzModule(f *testing.F) {
	for _, file := range hostileFiles() {
		if len(file.data) < 8192 {
			f.Add(file.data)
		}
	}
	f.Add(withThreadLocal().b)
	f.Add(withProbes([]byte("p\x00n\x008@%rax\x00")).b)
	if b, err := os.ReadFile("testdata/small.so"); err == nil {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := Open(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			return
		}
		_ = m.BuildID()
		if name, crc, ok := m.DebugLink(); ok && (filepath.Base(name) != name || m.Describes(m, crc) && m.BuildID() == "" && crc == 0) {
			t.Fatalf("debug link %q", name)
		}
		if more, err := m.Functions(m); (err == nil) != (len(more) > 0) {
			t.Fatalf("%d functions with error %v", len(more), err)
		}
		fns, err := m.Functions(nil)
		if (err == nil) != (len(fns) > 0) {
			t.Fatalf("%d functions with error %v", len(fns), err)
		}
		for i, fn := range fns {
			if i > 0 && fn.Address < fns[i-1].Address {
				t.Fatal("not sorted")
			}
			if off, ok := m.FileOffset(fn.Address); ok {
				if back, ok := m.Address(off); ok {
					_, _ = m.Code(back, 64)
				}
			}
		}
		variables, err := m.Pointers(nil)
		if (err == nil) != (len(variables) > 0) {
			t.Fatalf("%d variables with error %v", len(variables), err)
		}
		for _, v := range variables {
			if v.Size != 8 || v.Name == "" {
				t.Fatalf("%+v", v)
			}
		}
		_, _ = m.CodeAddress(uint64(len(b))/2, 4096)
		_, _ = m.Lookup([]string{"f", "g"})
		if probes, err := m.Probes("p"); err != nil && probes != nil {
			t.Fatalf("%d probes with error %v", len(probes), err)
		}
		if v, err := m.ThreadLocal("v"); (err == nil) != (v.Access != 0) {
			t.Fatalf("%+v with error %v", v, err)
		}
	})
}

func FuzzXZ(f *testing.F) {
	if b, err := os.ReadFile("testdata/zeros.xz"); err == nil {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if out, err := unxz(b, 1<<16); err == nil && len(out) > 1<<16 {
			t.Fatalf("%d bytes", len(out))
		}
	})
}
