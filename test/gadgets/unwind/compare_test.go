// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf16"

	"golang.org/x/sys/unix"
)

// sample is the stack that the kernel took at mark(id).
func (p *probe) sample(id uint64) (mark, stack, error) {
	var m mark
	var s stack
	if err := p.Maps["samples_by_id"].Lookup(id, &m); err != nil {
		return m, s, errMissing
	}
	if err := p.Maps["stacks_by_id"].Lookup(m.Stack, &s); err != nil {
		return m, s, fmt.Errorf("stack %x: %w", m.Stack, err)
	}
	return m, s, nil
}

// frames are the Python frames of a stack.
func (p *probe) frames(s stack) []frame {
	var frames []frame
	for _, f := range s.Python[:s.PythonCount] {
		frames = append(frames, p.frame(f))
	}
	return frames
}

func (p *probe) compare(id, runtime uint64, want []frame) error {
	m, s, err := p.sample(id)
	if err != nil {
		return err
	}
	if known := p.process(m.Process); known.Runtime != runtime {
		return fmt.Errorf("_PyRuntime at %x, want %x", known.Runtime, runtime)
	}
	var flags uint32 = flagHasPython
	if len(want) > len(s.Python) {
		want = want[:len(s.Python)]
		flags |= flagTruncated
	}
	got := p.frames(s)
	if m.Result == 0 && s.Flags == flags && slices.Equal(want, got) {
		return nil
	}
	if m.Result == -int64(unix.EFAULT) && len(got) <= len(want) && slices.Equal(want[:len(got)], got) {
		return errUnread
	}
	var text strings.Builder
	fmt.Fprintf(&text, "result %d, flags %d (want %d), %d frames (want %d), process %x",
		m.Result, s.Flags, flags, len(got), len(want), m.Process)
	for i := 0; i < len(want) || i < len(got); i++ {
		var w, g frame
		if i < len(want) {
			w = want[i]
		}
		if i < len(got) {
			g = got[i]
		}
		if w != g {
			fmt.Fprintf(&text, "\n  frame %d\n    want %v\n    got  %v", i, w, g)
		}
	}
	return errors.New(text.String())
}

// tail returns the part of s that the eBPF program stores in a field of that many bytes,
// at the width that CPython gives all characters of a string: that of its widest.
func tail(s string, bytes int) string {
	runes := []rune(s)
	width := 1
	for _, r := range runes {
		switch {
		case r > 0xffff:
			width = 4
		case r > 0xff:
			width = max(width, 2)
		}
	}
	return string(runes[max(0, len(runes)-bytes/width):])
}

func (p *probe) frame(f pythonFrame) frame {
	var s symbol
	if err := p.Maps["symbols_by_id"].Lookup(f.Symbol, &s); err != nil {
		return frame{name: fmt.Sprintf("symbol %x: %v", f.Symbol, err), line: f.Line}
	}
	return frame{
		name:  text(s.Name[:s.NameLen], s.NameKind),
		class: string(s.Class[:s.ClassLen]),
		file:  text(s.File[:s.FileLen], s.FileKind),
		line:  f.Line,
	}
}

// text decodes the interpreter's own encoding: 1, 2 or 4 bytes per character.
func text(b []byte, kind uint8) string {
	var runes []rune
	for i := 0; i+int(kind) <= len(b); i += int(kind) {
		var r rune
		for j := 0; j < int(kind); j++ {
			r |= rune(b[i+j]) << (8 * j)
		}
		runes = append(runes, r)
	}
	if kind == 2 {
		units := make([]uint16, len(runes))
		for i, r := range runes {
			units[i] = uint16(r)
		}
		runes = utf16.Decode(units)
	}
	return string(runes)
}

// Enumerators of drop_reason, bpf/program/drops.h.
const (
	dropFault       = "DROP_PYTHON_FAULT"
	dropUnsupported = "DROP_PYTHON_UNSUPPORTED"
	dropThread      = "DROP_PYTHON_THREAD"
	dropLine        = "DROP_PYTHON_LINE"
)

// dropReasons is the table of bpf/program/drops.h in its order. The enum itself is not in
// an object's BTF: no variable has its type.
var dropReasons = sync.OnceValues(func() ([]string, error) {
	header, err := os.ReadFile("../../../bpf/program/drops.h")
	if err != nil {
		return nil, err
	}
	names := []string{"DROP_NONE"}
	for _, row := range regexp.MustCompile(`X\((DROP_\w+),`).FindAllSubmatch(header, -1) {
		names = append(names, string(row[1]))
	}
	return names, nil
})

// dropped is how often a reason was counted.
func (p *probe) dropped(t *testing.T, reason string) uint64 {
	t.Helper()
	reasons, err := dropReasons()
	if err != nil {
		t.Fatal(err)
	}
	key := slices.Index(reasons, reason)
	if key < 0 {
		t.Fatalf("bpf/program/drops.h has no %s", reason)
	}
	var value struct{ Count, Bytes uint64 }
	if err := p.Maps["drops_by_reason"].Lookup(uint32(key), &value); err != nil {
		t.Fatal(err)
	}
	return value.Count
}
