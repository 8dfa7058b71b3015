// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"unicode/utf8"

	"github.com/cilium/ebpf/btf"
	"github.com/stretchr/testify/require"
)

// header replaces vmlinux.h and bpf_helpers.h: it has just what the
// headers around stack/stack.h need to compile.
const header = `
typedef unsigned char __u8; typedef unsigned short __u16;
typedef unsigned int __u32; typedef unsigned long long __u64;
#define SEC(name) __attribute__((section(name), used))
#define __uint(name, val) int (*name)[val]
#define __type(name, val) typeof(val) *name
#define __always_inline inline __attribute__((always_inline))
#define BPF_MAP_TYPE_HASH 1
#define BPF_MAP_TYPE_ARRAY 2
#define BPF_F_NO_PREALLOC 1
static void *(*bpf_map_lookup_elem)(void *, const void *) = (void *)1;
struct task_struct { int tgid; struct task_struct *group_leader; __u64 start_boottime; __u32 self_exec_id; };
static struct task_struct *(*bpf_get_current_task_btf)(void) = (void *)158;
#include "stack/stack.h"
`

func headerTypes(t *testing.T) *btf.Spec {
	t.Helper()
	clang, err := exec.LookPath("clang-19")
	if err != nil {
		clang, err = exec.LookPath("clang")
	}
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("CI installs clang; it is not in PATH")
		}
		t.Skip("no clang in PATH")
	}

	dir := t.TempDir()
	source, object := filepath.Join(dir, "layout.c"), filepath.Join(dir, "layout.o")
	require.NoError(t, os.WriteFile(source, []byte(header), 0o600))
	cmd := exec.Command(clang, "-target", "bpf", "-g", "-O2", "-I", "../../bpf", "-c", source, "-o", object)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	spec, err := btf.LoadSpec(object)
	require.NoError(t, err)
	return spec
}

func TestLayoutIsTheHeaders(t *testing.T) {
	spec := headerTypes(t)
	offsets := func(name string) (map[string]int, int) {
		var s *btf.Struct
		require.NoError(t, spec.TypeByName(name, &s))
		at := map[string]int{}
		for _, m := range s.Members {
			at[m.Name] = int(m.Offset.Bytes())
		}
		return at, int(s.Size)
	}

	at, size := offsets("stack")
	require.Equal(t, map[string]int{
		"flags": 0, "native_count": 4, "python_count": 6,
		"native": stackNativeOffset, "python": StackPythonOffset,
	}, at)
	require.Equal(t, StackBytes, size)

	at, size = offsets("python_frame")
	require.Equal(t, map[string]int{"symbol": 0, "line": 8, "flags": 12}, at)
	require.Equal(t, pythonFrameBytes, size)

	at, size = offsets("symbol")
	require.Equal(t, map[string]int{
		"first_line": 0, "name_len": 4, "file_len": 6, "class_len": 8,
		"name_kind": 10, "file_kind": 11, "cut": 12, "name_is_qualname": 13, "pad": 14,
		"name": symbolNameOffset, "file": symbolFileOffset, "class_name": symbolClassOffset,
	}, at)
	require.Equal(t, SymbolBytes, size)
}

// wireStack builds the bytes that the kernel would write.
func wireStack(flags Flags, native []uint64, python []RawPython) []byte {
	b := make([]byte, StackBytes)
	binary.NativeEndian.PutUint32(b, uint32(flags))
	binary.NativeEndian.PutUint16(b[4:], uint16(len(native)))
	binary.NativeEndian.PutUint16(b[6:], uint16(len(python)))
	for i, a := range native {
		binary.NativeEndian.PutUint64(b[stackNativeOffset+8*i:], a)
	}
	for i, p := range python {
		f := b[StackPythonOffset+pythonFrameBytes*i:]
		binary.NativeEndian.PutUint64(f, p.Symbol)
		binary.NativeEndian.PutUint32(f[8:], p.Line)
		if p.Asked {
			f[12] = asked
		}
	}
	return b
}

type wireName struct {
	name, file, class  []byte
	nameKind, fileKind uint8
	cut                uint8
	isQualname         bool
}

func (w wireName) bytes() []byte {
	b := make([]byte, SymbolBytes)
	binary.NativeEndian.PutUint32(b, 41)
	binary.NativeEndian.PutUint16(b[4:], uint16(len(w.name)))
	binary.NativeEndian.PutUint16(b[6:], uint16(len(w.file)))
	binary.NativeEndian.PutUint16(b[8:], uint16(len(w.class)))
	b[10], b[11], b[12] = w.nameKind, w.fileKind, w.cut
	if w.isQualname {
		b[13] = 1
	}
	copy(b[symbolNameOffset:], w.name)
	copy(b[symbolFileOffset:], w.file)
	copy(b[symbolClassOffset:], w.class)
	return b
}

func ucs2(s string) []byte {
	var b []byte
	for _, r := range s {
		b = binary.NativeEndian.AppendUint16(b, uint16(r))
	}
	return b
}

func ucs4(s string) []byte {
	var b []byte
	for _, r := range s {
		b = binary.NativeEndian.AppendUint32(b, uint32(r))
	}
	return b
}

func TestDecodeStack(t *testing.T) {
	want := Raw{Flags: HasPython | PythonTruncated, Native: []uint64{1 << 47, 2}, Python: []RawPython{{Symbol: 7, Line: 3}, {Asked: true}}}
	got, err := DecodeStack(wireStack(want.Flags, want.Native, want.Python))
	require.NoError(t, err)
	require.Equal(t, want, got)
}

func TestDecodeStackWithRuns(t *testing.T) {
	python := []RawPython{{Symbol: 7}, {Symbol: 8}, {Symbol: 9}}
	got, err := DecodeStack(wireStack(HasPython, []uint64{1, nativeRun | 2, 2, 3}, python))
	require.NoError(t, err)
	require.Equal(t, Raw{Flags: HasPython, Native: []uint64{1, 2, 3}, Python: python, Runs: []Run{{1, 2}}}, got)
	require.True(t, got.IsLeaf(0))
	require.False(t, got.IsLeaf(1))

	got, err = DecodeStack(wireStack(HasPython, []uint64{nativeRun, 1}, python))
	require.NoError(t, err)
	require.False(t, got.IsLeaf(0))

	_, err = DecodeStack(wireStack(HasPython, []uint64{nativeRun | 100, 1, nativeRun | 29}, python))
	require.ErrorIs(t, err, ErrWire)
}

func TestDecodeStackRefusesWhatCannotBe(t *testing.T) {
	_, err := DecodeStack(make([]byte, StackBytes-1))
	require.ErrorIs(t, err, ErrWire)

	b := wireStack(0, nil, nil)
	binary.NativeEndian.PutUint16(b[4:], nativeFrames+1)
	_, err = DecodeStack(b)
	require.ErrorIs(t, err, ErrWire)

	b = wireStack(0, nil, nil)
	binary.NativeEndian.PutUint16(b[6:], 0xffff)
	_, err = DecodeStack(b)
	require.ErrorIs(t, err, ErrWire)
}

func TestDecodeSymbol(t *testing.T) {
	for name, c := range map[string]struct {
		in   wireName
		want Symbol
	}{
		"qualname": {
			wireName{name: []byte("Runner.step"), file: []byte("/a.py"), class: []byte("Other"), nameKind: 1, fileKind: 1, isQualname: true},
			Symbol{"Runner.step", "/a.py", 41},
		},
		"class of self": {
			wireName{name: []byte("step"), file: []byte("/a.py"), class: []byte("Runner"), nameKind: 1, fileKind: 1},
			Symbol{"Runner.step", "/a.py", 41},
		},
		"function without class": {
			wireName{name: []byte("main"), nameKind: 1},
			Symbol{"main", "", 41},
		},
		"latin-1": {
			wireName{name: []byte{'c', 'a', 'f', 0xe9}, nameKind: 1, isQualname: true},
			Symbol{"café", "", 41},
		},
		"ucs-2": {
			wireName{name: ucs2("模型"), file: ucs2("/数据.py"), nameKind: 2, fileKind: 2, isQualname: true},
			Symbol{"模型", "/数据.py", 41},
		},
		"ucs-4": {
			wireName{name: ucs4("f𝒙"), nameKind: 4, isQualname: true},
			Symbol{"f𝒙", "", 41},
		},
		"lone surrogate": {
			wireName{name: []byte{0x00, 0xd8}, nameKind: 2, isQualname: true},
			Symbol{"\uFFFD", "", 41},
		},
		"cut": {
			wireName{name: []byte("tail"), file: []byte("dir/a.py"), class: []byte("\xa9Runner"), nameKind: 1, fileKind: 1, cut: cutName | cutFile | cutClass},
			Symbol{"…Runner.…tail", "…dir/a.py", 41},
		},
		"no name": {wireName{}, Symbol{Unreadable, "", 41}},
	} {
		got, err := DecodeSymbol(c.in.bytes())
		require.NoError(t, err, name)
		require.Equal(t, c.want, got, name)
	}
}

func TestDecodeSymbolRefusesWhatCannotBe(t *testing.T) {
	for name, b := range map[string][]byte{
		"short":            make([]byte, SymbolBytes-1),
		"kind 3":           wireName{name: []byte("abc"), nameKind: 3}.bytes(),
		"half a character": wireName{name: []byte("abc"), nameKind: 2}.bytes(),
		"long class": func() []byte {
			b := wireName{}.bytes()
			binary.NativeEndian.PutUint16(b[8:], classBytes+1)
			return b
		}(),
	} {
		_, err := DecodeSymbol(b)
		require.ErrorIs(t, err, ErrWire, name)
	}
}

func FuzzDecodeStack(f *testing.F) {
	f.Add(wireStack(HasPython, []uint64{1, 2}, []RawPython{{Symbol: 3, Line: 4}}))
	f.Add(wireStack(0, nil, nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		raw, err := DecodeStack(b)
		if err != nil {
			require.ErrorIs(t, err, ErrWire)
			return
		}
		require.LessOrEqual(t, len(raw.Native), nativeFrames)
		require.LessOrEqual(t, len(raw.Python), pythonFrames)
	})
}

func FuzzDecodeSymbol(f *testing.F) {
	f.Add(wireName{name: []byte("Runner.step"), file: []byte("/a.py"), nameKind: 1, fileKind: 1, isQualname: true}.bytes())
	f.Add(wireName{name: ucs4("f"), class: []byte("\x80X"), nameKind: 4, cut: 7}.bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		symbol, err := DecodeSymbol(b)
		if err != nil {
			require.ErrorIs(t, err, ErrWire)
			return
		}
		require.True(t, utf8.ValidString(symbol.Function))
		require.True(t, utf8.ValidString(symbol.File))
		require.NotEmpty(t, symbol.Function)
	})
}
