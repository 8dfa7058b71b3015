// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// lines are the lines of eBPF that the gadgets of a vendor are compiled from, without empty ones,
// comments and conditions.
type lines struct {
	tables, own, marked, shared int

	seen map[string]bool
}

// vendorTables are the tables and names of bpf/hip.
var vendorTables = map[string]bool{"apis.h": true, "launch_apis.h": true, "error.h": true}

var (
	blockComment = regexp.MustCompile(`(?s)/\*.*?\*/`)
	lineComment  = regexp.MustCompile(`(?m)//.*$`)
	included     = regexp.MustCompile(`^#include "([^"]+)"$`)
)

// branch says for which vendors a branch of a condition is compiled.
type branch uint8

const (
	forAll branch = iota
	forVendor
	forOthers
)

func (b branch) otherwise() branch {
	switch b {
	case forVendor:
		return forOthers
	case forOthers:
		return forVendor
	}
	return forAll
}

// branchOf knows the conditions that depend on the vendor. INTERPOSERS_PROBED is defined for CUDA alone.
func branchOf(condition string) branch {
	b := forAll
	switch {
	case strings.Contains(condition, "INTERPOSERS_PROBED"), strings.Contains(condition, "!defined(VENDOR_HIP)"):
		b = forOthers
	case strings.Contains(condition, "VENDOR_HIP"), strings.Contains(condition, "MEMORY_HELD"):
		b = forVendor
	}
	if strings.HasPrefix(condition, "#ifndef") {
		return b.otherwise()
	}
	return b
}

// add counts a file and what it includes, relative to itself or to bpf/.
func (l *lines) add(t *testing.T, root, path string) {
	t.Helper()
	if l.seen[path] {
		return
	}
	l.seen[path] = true
	text, err := os.ReadFile(filepath.Join(root, path))
	require.NoError(t, err)
	text = lineComment.ReplaceAll(blockComment.ReplaceAll(text, nil), nil)
	var within []branch
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		switch {
		case line == "":
		case strings.HasPrefix(line, "#if"):
			within = append(within, branchOf(line))
		case strings.HasPrefix(line, "#else"):
			within[len(within)-1] = within[len(within)-1].otherwise()
		case strings.HasPrefix(line, "#endif"):
			within = within[:len(within)-1]
		case has(within, forOthers):
		default:
			l.count(path, has(within, forVendor))
			if m := included.FindStringSubmatch(line); m != nil {
				beside := filepath.Join(filepath.Dir(path), m[1])
				if _, err := os.Stat(filepath.Join(root, beside)); err == nil {
					l.add(t, root, beside)
				} else {
					l.add(t, root, filepath.Join("bpf", m[1]))
				}
			}
		}
	}
}

func has(within []branch, b branch) bool {
	for _, w := range within {
		if w == b {
			return true
		}
	}
	return false
}

func (l *lines) count(path string, isMarked bool) {
	switch dir, name := filepath.Split(path); {
	case dir == "bpf/hip/" && vendorTables[name]:
		l.tables++
	case dir == "bpf/hip/" || strings.HasPrefix(dir, "gadgets/hip_"):
		l.own++
	case isMarked:
		l.marked++
	default:
		l.shared++
	}
}

// TestHowMuchOfAVendorIsNoTable keeps the figures of docs/architecture/vendors.md.
func TestHowMuchOfAVendorIsNoTable(t *testing.T) {
	const page, begin, end = "docs/architecture/vendors.md", "<!-- lines: begin -->\n", "<!-- lines: end -->"
	root := filepath.Join("..", "..")
	l := lines{seen: map[string]bool{}}
	l.add(t, root, "gadgets/hip_alloc/program.bpf.c")
	l.add(t, root, "gadgets/hip_kernel/program.bpf.c")
	table := fmt.Sprintf("| lines of eBPF | of HIP |\n|---|--:|\n"+
		"| tables of calls and names of errors: `apis.h`, `launch_apis.h`, `error.h` | %d |\n"+
		"| code in `bpf/hip` and the two gadgets | %d |\n"+
		"| code in headers of both, under `VENDOR_HIP` or `MEMORY_HELD` | %d |\n"+
		"| shared with CUDA, to the nearest thousand | %d,000 |\n", l.tables, l.own, l.marked, (l.shared+500)/1000)
	text, err := os.ReadFile(filepath.Join(root, page))
	require.NoError(t, err)
	before, rest, ok := strings.Cut(string(text), begin)
	require.True(t, ok)
	was, after, ok := strings.Cut(rest, end)
	require.True(t, ok)
	if *update {
		require.NoError(t, os.WriteFile(filepath.Join(root, page), []byte(before+begin+table+end+after), 0o644))
		return
	}
	require.Equal(t, table, was, "stale: go test ./internal/layout -run Vendor -update")
}
