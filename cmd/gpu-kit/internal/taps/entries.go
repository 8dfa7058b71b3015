// SPDX-License-Identifier: Apache-2.0

package taps

import (
	"debug/elf"
	"fmt"
	"sort"
	"strings"

	"github.com/gpu-gadgets/gpu-gadgets/internal/elf/placement"
)

// Entry is an exported function of a library.
type Entry struct {
	Name       string
	FileOffset uint64 // of its first instruction
	Place      uint64 // where ig-gpu probes it, from there on
	Code       []byte // at most placement.Window bytes
	Machine    elf.Machine
}

// maxEntries is above the number of libcuda's exports (700 in 550.163, 900 in 575).
const maxEntries = 4096

// Entries reads the functions that a library exports whose names have a prefix, by name.
// If one address has several names, the first counts.
func Entries(path, prefix string) ([]Entry, error) {
	f, err := elf.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	defer f.Close()
	symbols, err := f.DynamicSymbols()
	if err != nil {
		return nil, fmt.Errorf("read the symbols of %s: %w", path, err)
	}
	sort.Slice(symbols, func(i, j int) bool { return symbols[i].Name < symbols[j].Name })
	var all []Entry
	seen := map[uint64]bool{}
	for _, s := range symbols {
		if elf.ST_TYPE(s.Info) != elf.STT_FUNC || s.Section == elf.SHN_UNDEF || s.Value == 0 ||
			!strings.HasPrefix(s.Name, prefix) || seen[s.Value] || len(all) == maxEntries {
			continue
		}
		for _, p := range f.Progs {
			if p.Type != elf.PT_LOAD || s.Value < p.Vaddr || s.Value-p.Vaddr >= p.Filesz {
				continue
			}
			code := make([]byte, min(placement.Window, p.Filesz-(s.Value-p.Vaddr)))
			if _, err := p.ReadAt(code, int64(s.Value-p.Vaddr)); err != nil {
				return nil, fmt.Errorf("read %s of %s: %w", s.Name, path, err)
			}
			seen[s.Value] = true
			all = append(all, Entry{
				Name: s.Name, FileOffset: s.Value - p.Vaddr + p.Off, Code: code, Machine: f.Machine,
				Place: placement.Offset(f.Machine, code),
			})
		}
	}
	return all, nil
}

// Shape is the first instructions of an entry, as the docs and the simulated driver have it.
func (e Entry) Shape() string {
	c := e.Code
	switch {
	case e.Machine == elf.EM_X86_64 && len(c) > 12 && c[0] == 0x81 && c[1] == 0x3d && c[10] == 0x74:
		return "cmpl; je"
	case e.Machine == elf.EM_AARCH64 && len(c) >= 4 && c[3]&0x9f == 0x90:
		return "adrp"
	case len(c) >= 4 && c[0] == 0xf3 && c[1] == 0x0f && c[2] == 0x1e && c[3] == 0xfa:
		return "endbr64"
	case e.Machine == elf.EM_X86_64 && len(c) > 0 && c[0]&^7 == 0x50:
		return "push"
	}
	return fmt.Sprintf("% x", c[:min(4, len(c))])
}
