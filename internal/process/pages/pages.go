// SPDX-License-Identifier: Apache-2.0

// Package pages faults in pages of a process that an eBPF program is about to read and
// cannot wait for: uprobe programs may not sleep before Linux 6.0. It performs the search
// of bpf/python/runtime/discover.h through /proc/PID/mem, where each read maps the page in
// the process. These pages depend only on the files, so one visit is enough for most
// processes.
package pages

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
)

// The limits are those of bpf/python/runtime/discover.h, and so are the names of ELF.
const (
	maxHeaders = 64
	maxDynamic = 128
	maxModules = 1024
	maxChain   = 32

	atHeaders, atHeaderCount   = 3, 5    // AT_PHDR, AT_PHNUM
	ptLoad, ptDynamic, ptPhdr  = 1, 2, 6 // of Elf64_Phdr
	dtStrings, dtSymbols       = 5, 6    // DT_STRTAB, DT_SYMTAB
	dtDebug, dtHash            = 21, 0x6ffffef5
	headerBytes, symbolBytes   = 56, 24 // Elf64_Phdr, Elf64_Sym
	pageMask                   = ^uint64(0xfff)
	runtime                    = "_PyRuntime"
	nameBytes                  = 32 // bytes of a symbol's name that are read
	cookieBytes, versionBytes  = 24, 8
	debugMap                   = 8 // r_debug.r_map
	bloomWordBits, bucketBytes = 64, 4
)

// Names that distinguish versions; see python_identify_version().
var versions = []string{"Py_Version", "PyModule_AddObjectRef", "PyModule_AddType", "PyCode_NewWithPosOnlyArgs"}

// memory is that of a process. The first failed read is kept, and later ones return
// zeroes.
type memory struct {
	file io.ReaderAt
	err  error
}

func (m *memory) read(at uint64, n int) []byte {
	b := make([]byte, n)
	if m.err == nil {
		_, m.err = m.file.ReadAt(b, int64(at))
	}
	return b
}

func (m *memory) word(at uint64) uint64 { return binary.LittleEndian.Uint64(m.read(at, 8)) }
func (m *memory) half(at uint64) uint32 { return binary.LittleEndian.Uint32(m.read(at, 4)) }

// tables are those of a module, as addresses.
type tables struct{ base, strings, symbols, hash, debug uint64 }

// Python reads the pages that the search for the interpreter of a process needs, and
// returns the address of its _PyRuntime, 0 if there is none. The process is not stopped.
// The call takes as long as reading the process's pages: forever if a hostile process
// serves them itself.
func Python(procfs string, pid uint32) (uint64, error) {
	dir := filepath.Join(procfs, strconv.FormatUint(uint64(pid), 10))
	auxv, err := os.ReadFile(filepath.Join(dir, "auxv"))
	if err != nil {
		return 0, fmt.Errorf("read the pages of process %d: %w", pid, err)
	}
	file, err := os.Open(filepath.Join(dir, "mem"))
	if err != nil {
		return 0, fmt.Errorf("read the pages of process %d: %w", pid, err)
	}
	defer file.Close()
	m := &memory{file: file}
	found := m.python(auxv)
	if m.err != nil {
		return 0, fmt.Errorf("read the pages of process %d: %w", pid, m.err)
	}
	return found, nil
}

func (m *memory) python(auxv []byte) uint64 {
	module := m.modules(auxv)
	for range maxModules {
		if module == 0 || m.err != nil {
			return 0
		}
		entry := m.read(module, 32) // l_addr, l_name, l_ld, l_next
		t := m.dynamic(binary.LittleEndian.Uint64(entry[16:]), binary.LittleEndian.Uint64(entry))
		if found := m.symbol(t, runtime); found != 0 {
			m.read(found, cookieBytes)
			for _, name := range versions {
				if at := m.symbol(t, name); at != 0 {
					m.read(at, versionBytes)
					break
				}
			}
			return found
		}
		module = binary.LittleEndian.Uint64(entry[24:])
	}
	return 0
}

// modules returns the address of the first link_map entry; 0: there is none.
func (m *memory) modules(auxv []byte) uint64 {
	var headers, count uint64
	for ; len(auxv) >= 16; auxv = auxv[16:] {
		switch value := binary.LittleEndian.Uint64(auxv[8:]); binary.LittleEndian.Uint64(auxv) {
		case atHeaders:
			headers = value
		case atHeaderCount:
			count = value
		}
	}
	if headers == 0 {
		return 0
	}
	var bias, dynamic uint64
	hasBias := false
	for i := range min(count, maxHeaders) {
		h := m.read(headers+i*headerBytes, headerBytes)
		offset, address := binary.LittleEndian.Uint64(h[8:]), binary.LittleEndian.Uint64(h[16:])
		switch binary.LittleEndian.Uint32(h) {
		case ptPhdr:
			bias, hasBias = headers-address, true
		case ptLoad:
			if offset == 0 && !hasBias {
				bias, hasBias = headers&pageMask-address, true
			}
		case ptDynamic:
			dynamic = address
		}
	}
	if dynamic == 0 || !hasBias {
		return 0
	}
	debug := m.dynamic(bias+dynamic, bias).debug
	if debug == 0 {
		return 0
	}
	return m.word(debug + debugMap)
}

func (m *memory) dynamic(at, base uint64) tables {
	t := tables{base: base}
	for range maxDynamic {
		entry := m.read(at, 16)
		at += 16
		value := binary.LittleEndian.Uint64(entry[8:])
		switch binary.LittleEndian.Uint64(entry) {
		case 0:
			// glibc relocates these in memory, musl and the vDSO do not.
			for _, address := range []*uint64{&t.strings, &t.symbols, &t.hash} {
				if *address != 0 && *address < base {
					*address += base
				}
			}
			return t
		case dtStrings:
			t.strings = value
		case dtSymbols:
			t.symbols = value
		case dtHash:
			t.hash = value
		case dtDebug:
			t.debug = value
		}
	}
	return tables{}
}

// symbol returns the address of a symbol that the module defines; 0: it does not define it.
func (m *memory) symbol(t tables, name string) uint64 {
	if t.hash == 0 {
		return 0
	}
	hash := uint32(5381)
	for _, c := range []byte(name) {
		hash = hash*33 + uint32(c)
	}
	head := m.read(t.hash, 16)
	buckets, first := binary.LittleEndian.Uint32(head), binary.LittleEndian.Uint32(head[4:])
	words, shift := binary.LittleEndian.Uint32(head[8:]), binary.LittleEndian.Uint32(head[12:])
	if buckets == 0 || words == 0 {
		return 0
	}
	at := t.hash + 16
	bloom := m.word(at + uint64(hash/bloomWordBits%words)*8)
	if bloom>>(hash&63)&(bloom>>(hash>>(shift&31)&63))&1 == 0 {
		return 0
	}
	at += uint64(words) * 8
	index := m.half(at + uint64(hash%buckets)*bucketBytes)
	if index < first {
		return 0
	}
	at += uint64(buckets)*bucketBytes + uint64(index-first)*4
	for range maxChain {
		chain := m.half(at)
		if chain|1 == hash|1 {
			s := m.read(t.symbols+uint64(index)*symbolBytes, symbolBytes)
			text := m.read(t.strings+uint64(binary.LittleEndian.Uint32(s)), nameBytes)
			text, _, _ = bytes.Cut(text, []byte{0})
			if string(text) == name && binary.LittleEndian.Uint16(s[6:]) != 0 {
				return t.base + binary.LittleEndian.Uint64(s[8:])
			}
		}
		if chain&1 != 0 || m.err != nil {
			return 0
		}
		at, index = at+4, index+1
	}
	return 0
}
