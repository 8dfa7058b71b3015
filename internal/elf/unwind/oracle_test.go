// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/ebpf-profiler/nativeunwind/elfunwindinfo"
	"go.opentelemetry.io/ebpf-profiler/nativeunwind/stackdeltatypes"
	"go.opentelemetry.io/ebpf-profiler/support"
)

// pageBytes is the code whose rules a walk requests at once.
const pageBytes = 1024

// allRows are the rules of all code of a file.
func allRows(t testing.TB, path string) (rows []Row, f *File) {
	t.Helper()
	file, err := os.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { file.Close() })
	st, err := file.Stat()
	require.NoError(t, err)
	f, err = Open(file, st.Size())
	require.NoError(t, err)
	for _, l := range f.loads {
		if !l.exec {
			continue
		}
		for at := l.off; at < l.off+l.filesz; at += pageBytes {
			page, err := f.Rows(at, min(at+pageBytes, l.off+l.filesz))
			require.NoError(t, err)
			rows = append(rows, page...)
		}
	}
	return rows, f
}

// libraries are files of this machine that any distribution has.
func libraries(t *testing.T) []string {
	t.Helper()
	var found []string
	for _, pattern := range []string{"libc.so.6", "libstdc++.so.6", "libm.so.6", "ld-linux*", "libgcc_s.so.1"} {
		for _, dir := range []string{"/lib/*-linux-gnu", "/usr/lib/*-linux-gnu", "/lib64", "/usr/lib64"} {
			matches, err := filepath.Glob(filepath.Join(dir, pattern))
			require.NoError(t, err)
			if len(matches) > 0 {
				found = append(found, matches[0])
				break
			}
		}
	}
	require.NotEmpty(t, found)
	return found
}

// compiled is a program of this machine's compiler.
func compiled(t *testing.T, flags ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	out, err := exec.Command("gcc", append(flags, "-o", path, "testdata/program.c")...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return path
}

// TestRulesEqualThoseOfAnotherReader compares with OpenTelemetry's profiler, which reads whole
// files.
func TestRulesEqualThoseOfAnotherReader(t *testing.T) {
	paths := libraries(t)
	for _, flags := range [][]string{
		{"-O0"}, {"-O2"}, {"-O3", "-fomit-frame-pointer"}, {"-O2", "-fno-omit-frame-pointer"},
		{"-Os", "-static"}, {"-O2", "-fcf-protection=full", "-Wl,-z,lazy"},
	} {
		paths = append(paths, compiled(t, flags...))
	}
	if extra := os.Getenv("UNWIND_FILES"); extra != "" {
		paths = append(paths, filepath.SplitList(extra)...)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) { compareRules(t, path) })
	}
}

func compareRules(t *testing.T, path string) {
	var want stackdeltatypes.IntervalData
	require.NoError(t, elfunwindinfo.Extract(path, &want))
	rows, f := allRows(t, path)
	t.Logf("%d rows, the other reader has %d", len(rows), len(want.Deltas))
	require.NotEmpty(t, rows)

	handlers := leaveForHandlers(t, path)
	at := 0
	compared, wrong, cold := 0, 0, 0
	for _, d := range want.Deltas {
		off, ok := f.codeOffset(d.Address)
		if !ok {
			continue
		}
		for at+1 < len(rows) && rows[at+1].Offset <= off {
			at++
		}
		expected, known := ruleOf(d.Info, f)
		if !known {
			continue
		}
		// What is between functions: the other reader keeps the rule before across padding, and
		// takes a rule whose return address cannot be found for an end.
		got := rows[at].Rule
		if expected.Kind == None || (expected.Kind == Stop && got.Kind == None) {
			continue
		}
		if got.Kind == None && len(handlers) > 0 {
			if slices.ContainsFunc(handlers, func(s elf.Symbol) bool { return d.Address-s.Value < s.Size }) {
				continue
			}
			if cold++; cold <= 4 { // each may have a part that is never executed, and has no symbol
				continue
			}
		}
		compared++
		if got.Kind == Signal || expected == got {
			continue
		}
		if wrong++; wrong < 10 {
			assert.Equal(t, expected, got, "at address %#x", d.Address)
		}
	}
	assert.Zero(t, wrong, "of %d", compared)
	assert.Greater(t, compared, 5)
	t.Logf("%d compared", compared)
}

// leaveForHandlers are the functions of libgcc that return to an exception's handler: see handlerData.
func leaveForHandlers(t *testing.T, path string) (found []elf.Symbol) {
	f, err := elf.Open(path)
	require.NoError(t, err)
	defer f.Close()
	for _, read := range []func() ([]elf.Symbol, error){f.Symbols, f.DynamicSymbols} {
		all, _ := read()
		for _, s := range all {
			switch s.Name {
			case "_Unwind_RaiseException", "_Unwind_ForcedUnwind", "_Unwind_Resume", "_Unwind_Resume_or_Rethrow":
				found = append(found, s)
			}
		}
	}
	return found
}

// codeOffset is where an address of code is in the file.
func (f *File) codeOffset(addr uint64) (uint64, bool) {
	for _, l := range f.loads {
		if l.exec && addr >= l.addr && addr < l.addr+l.filesz {
			return addr - l.addr + l.off, true
		}
	}
	return 0, false
}

// ruleOf is a rule of the other reader; ok is false for one that has no counterpart here.
func ruleOf(u stackdeltatypes.UnwindInfo, f *File) (r Rule, ok bool) {
	if u.Flags&support.UnwindFlagCommand != 0 {
		switch u.Param {
		case support.UnwindCommandStop:
			return Rule{Kind: Stop}, true
		case support.UnwindCommandInvalid:
			return Rule{}, true
		}
		return Rule{}, false // of linkage tables and signals, which have tests of their own
	}
	r = Rule{RA: -8, CFA: u.Param}
	deref := u.Flags&support.UnwindFlagDerefCfa != 0
	if deref {
		pre, post := stackdeltatypes.UnpackDerefParam(u.Param)
		r.CFA, r.Add = pre, int16(post)
	}
	switch {
	case u.BaseReg == support.UnwindRegSp && deref:
		r.Kind = FromWordAtSP
	case u.BaseReg == support.UnwindRegSp:
		r.Kind = FromSP
	case u.BaseReg == support.UnwindRegFp && deref:
		r.Kind = FromWordAtFP
	case u.BaseReg == support.UnwindRegFp:
		r.Kind = FromFP
	default:
		return r, false
	}
	switch u.AuxBaseReg {
	case support.UnwindRegCfa:
		r.Saved, r.FP = AtCFA, int16(u.AuxParam)
	case support.UnwindRegFp:
		r.Saved, r.FP = AtFP, int16(u.AuxParam)
	}
	return r, true
}

func BenchmarkRows(b *testing.B) {
	for _, page := range []uint64{1 << 10, 1 << 12} {
		b.Run(fmt.Sprint(page), func(b *testing.B) {
			path, err := filepath.EvalSymlinks("/lib/x86_64-linux-gnu/libc.so.6")
			require.NoError(b, err)
			_, f := allRows(b, path)
			begin, end := f.loads[1].off, f.loads[1].off+f.loads[1].filesz
			at := begin
			for b.Loop() {
				if _, err := f.Rows(at, at+page); err != nil {
					b.Fatal(err)
				}
				if at += 37 * page; at >= end {
					at = begin + at%page
				}
			}
		})
	}
}
