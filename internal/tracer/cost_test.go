// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/cilium/ebpf/link"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/elf/module"
	"github.com/gpu-gadgets/gpu-gadgets/internal/elf/placement"
)

// TestPlacementChoosesWhatThisKernelEmulates compares the cost of a probe on
// the instruction that package placement chooses to that on the entry.
func TestPlacementChoosesWhatThisKernelEmulates(t *testing.T) {
	k := load(t)
	if runtime.GOARCH != "amd64" {
		t.Skip("the code is for amd64; this is ", runtime.GOARCH)
	}
	// Each begins with an instruction that is stepped.
	functions := map[string]struct {
		code   string
		offset uint64
	}{
		"endbr_push": {`.byte 0xf3,0x0f,0x1e,0xfa; push %rbx; pop %rbx; ret`, 4},
		"endbr_r12":  {`.byte 0xf3,0x0f,0x1e,0xfa; push %r12; pop %r12; ret`, 4},
		"test_je":    {`test %rdi,%rdi; je 1f; 1: ret`, 3},
		"test_jne":   {`test %rdi,%rdi; .byte 0x0f,0x85,0,0,0,0; ret`, 3},
		"test_jmp":   {`test %rdi,%rdi; jmp 1f; 1: ret`, 3},
		"test_nop":   {`test %rdi,%rdi; nop; ret`, 3},
	}
	source := ""
	for name, f := range functions {
		source += `__asm__(".globl ` + name + `\n.type ` + name + `,@function\n` + name + `: ` + f.code + `\n");` + "\n"
	}
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(dir+"/asm.c", []byte(source), 0o644))
	lib := filepath.Join(dir, "libasm.so")
	run(t, "gcc", "-shared", "-fPIC", "-o", lib, dir+"/asm.c")
	f, err := os.Open(lib)
	require.NoError(t, err)
	defer f.Close()
	st, err := f.Stat()
	require.NoError(t, err)
	m, err := module.Open(f, st.Size())
	require.NoError(t, err)
	ex, err := link.OpenExecutable(lib)
	require.NoError(t, err)
	h := startHost(t)
	h.ask("open %s", lib)
	for name, want := range functions {
		found, err := m.Lookup([]string{name})
		require.NoError(t, err)
		code, err := m.Code(found[name], 16)
		require.NoError(t, err)
		require.Equal(t, want.offset, placement.Offset(m.Machine(), code), name)
		entry, _ := m.FileOffset(found[name])
		cost := func(offset uint64) int64 {
			l, err := ex.Uprobe("", k.Collection.Programs["nothing"], &link.UprobeOptions{Address: entry, Offset: offset})
			require.NoError(t, err)
			defer l.Close()
			best := int64(1 << 62)
			for range 5 {
				best = min(best, h.ask("call %s 2000", name))
			}
			return best
		}
		at0, chosen := cost(0), cost(want.offset)
		t.Logf("%s: +0 %d ns, +%d %d ns", name, at0, want.offset, chosen)
		require.Less(t, chosen, at0, name)
	}
}
