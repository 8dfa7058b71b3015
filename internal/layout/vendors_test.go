// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// vendors are the folders of bpf/ with the tables of a vendor each.
var vendors = []string{"cuda", "hip"}

// lines are the lines of eBPF that the gadgets of HIP are compiled from, without empty ones and
// comments.
type lines struct {
	tables, gadgets, shared int

	conditions, code []string // not allowed: in shared headers; in tables
	seen             map[string]bool
}

var (
	blockComment = regexp.MustCompile(`(?s)/\*.*?\*/`)
	lineComment  = regexp.MustCompile(`(?m)//.*$`)
	included     = regexp.MustCompile(`^#include "([^"]+)"$`)
	ofVendor     = regexp.MustCompile(`^#include VENDOR_TABLE\((\w+\.h)\)$`)
	onVendor     = regexp.MustCompile(`(?i)^#\s*(el)?if.*(vendor|hip|cuda(_|\b)|nvidia|amd(_|\b))`)
	program      = regexp.MustCompile(`SEC\(|__always_inline|__noinline|\breturn\b|\bif \(|^#\s*(el)?if`)
	guard        = regexp.MustCompile(`^#ifndef GPU_GADGETS_\w+_H$`)
)

// add counts a file and what it includes, relative to itself or to bpf/.
func (l *lines) add(t *testing.T, root, path string) {
	t.Helper()
	if l.seen[path] {
		return
	}
	l.seen[path] = true
	for line := range strings.Lines(source(t, filepath.Join(root, path))) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		l.count(path, line)
		if m := ofVendor.FindStringSubmatch(line); m != nil {
			l.add(t, root, filepath.Join("bpf/hip", m[1]))
		} else if m := included.FindStringSubmatch(line); m != nil {
			beside := filepath.Join(filepath.Dir(path), m[1])
			if _, err := os.Stat(filepath.Join(root, beside)); err != nil {
				beside = filepath.Join("bpf", m[1])
			}
			l.add(t, root, beside)
		}
	}
}

func (l *lines) count(path, line string) {
	switch dir := filepath.Dir(path); {
	case dir == "bpf/hip":
		l.tables++
		if program.MatchString(line) && !guard.MatchString(line) {
			l.code = append(l.code, path+": "+line)
		}
	case strings.HasPrefix(dir, "gadgets/hip_"):
		l.gadgets++
	default:
		l.shared++
		if onVendor.MatchString(line) && !guard.MatchString(line) && line != "#ifndef VENDOR" {
			l.conditions = append(l.conditions, path+": "+line)
		}
	}
}

// source is the text of a file without comments.
func source(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(lineComment.ReplaceAll(blockComment.ReplaceAll(text, nil), nil))
}

// TestHowMuchOfAVendorIsNoTable keeps the figures of docs/architecture/vendors.md, and HIP's
// folder free of code, and the shared headers free of vendors.
func TestHowMuchOfAVendorIsNoTable(t *testing.T) {
	root := filepath.Join("..", "..")
	l := lines{seen: map[string]bool{}}
	l.add(t, root, "gadgets/hip_alloc/program.bpf.c")
	l.add(t, root, "gadgets/hip_kernel/program.bpf.c")
	require.Greater(t, l.tables, 200, "the tables are not found")
	require.Empty(t, l.code, "code in a table: what it does belongs to the shared headers, for any vendor")
	require.Empty(t, l.conditions, "a shared header asks for the vendor: let a row, or vendor.h, say it")
	section(t, "lines", fmt.Sprintf("| lines of eBPF | of HIP |\n|---|--:|\n"+
		"| tables and names: `bpf/hip` | %d |\n"+
		"| the two gadgets: `#define VENDOR hip` and an include each | %d |\n"+
		"| functions, programs and conditions in `bpf/hip` | %d |\n"+
		"| conditions on the vendor in shared headers | %d |\n"+
		"| shared headers, to the nearest thousand | %d,000 |\n",
		l.tables, l.gadgets, len(l.code), len(l.conditions), (l.shared+500)/1000))
}

// words of rows: operations, flags and details, which the shared headers define.
var words = regexp.MustCompile(`\b(MEMORY|CALL|LAUNCH|COPY|CONTEXT)_[A-Z0-9_]+\b`)

// TestWhatOneVendorAloneSays keeps the table of words in docs/architecture/vendors.md.
func TestWhatOneVendorAloneSays(t *testing.T) {
	root := filepath.Join("..", "..")
	said := map[string][]string{}
	for _, vendor := range vendors {
		for _, name := range []string{"apis.h", "launch_apis.h"} {
			for _, row := range regexp.MustCompile(`(?m)^\s+X\(.*$(\n\s+[^X\s].*$)*`).FindAllString(source(t, filepath.Join(root, "bpf", vendor, name)), -1) {
				for _, word := range words.FindAllString(row, -1) {
					if !slices.Contains(said[vendor], word) {
						said[vendor] = append(said[vendor], word)
					}
				}
			}
		}
		require.Greater(t, len(said[vendor]), 30, vendor)
	}
	alone := func(vendor, other string) string {
		var list []string
		for _, word := range said[vendor] {
			if !slices.Contains(said[other], word) {
				list = append(list, "`"+word+"`")
			}
		}
		slices.Sort(list)
		return strings.Join(list, ", ")
	}
	section(t, "words", "| vendor | it alone says |\n|---|---|\n"+
		"| CUDA | "+alone("cuda", "hip")+" |\n| HIP | "+alone("hip", "cuda")+" |\n")
}

// section compares a part of the page with what it should be, or writes it.
func section(t *testing.T, name, want string) {
	t.Helper()
	page := filepath.Join("..", "..", "docs/architecture/vendors.md")
	begin, end := "<!-- "+name+": begin -->\n", "<!-- "+name+": end -->"
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	before, rest, ok := strings.Cut(string(text), begin)
	require.True(t, ok)
	was, after, ok := strings.Cut(rest, end)
	require.True(t, ok)
	if *update {
		require.NoError(t, os.WriteFile(page, []byte(before+begin+want+end+after), 0o644))
		return
	}
	require.Equal(t, want, was, "stale: go test ./internal/layout -run 'Vendor' -update")
}
