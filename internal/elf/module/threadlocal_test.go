// SPDX-License-Identifier: Apache-2.0

package module

import (
	"bytes"
	"debug/elf"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const variable = "otel_thread_ctx_v1"

// threadLocalOf compiles a program or a library, and asks for the variable.
func threadLocalOf(t *testing.T, compiler string, flags ...string) (ThreadLocal, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "object")
	flags = append([]string{"-O1", "-o", path, "../../../test/gadgets/spans/testdata/publisher.c"}, flags...)
	out, err := exec.Command(compiler, flags...).CombinedOutput()
	require.NoError(t, err, "%s %v: %s", compiler, flags, out)
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	m, err := Open(bytes.NewReader(b), int64(len(b)))
	require.NoError(t, err)
	return m.ThreadLocal(variable)
}

// What each kind of code asks of the dynamic linker, for both processors. The offsets
// of programs are those that the compilers have put into the code.
func TestThreadLocalIsFoundAsCompiled(t *testing.T) {
	main := filepath.Join(t.TempDir(), "main.c")
	require.NoError(t, os.WriteFile(main, []byte(`void publish(void *); int main(void) { publish(0); return 0; }`), 0o644))
	program := []string{main, "-Wl,--export-dynamic-symbol=" + variable}
	library := []string{"-shared", "-fPIC"}
	with := func(flags []string, more ...string) []string { return append(append([]string(nil), flags...), more...) }
	for name, c := range map[string]struct {
		compiler string
		flags    []string
		want     ThreadLocal
	}{
		"x86-64, program":                 {"gcc", program, ThreadLocal{Access: AccessStatic, IsProgram: true}},
		"x86-64, program not relocatable": {"gcc", with(program, "-no-pie"), ThreadLocal{Access: AccessStatic, IsProgram: true}},
		"x86-64, index":                   {"gcc", library, ThreadLocal{Access: AccessIndex, Offset: OffsetBeside}},
		"x86-64, index, own":              {"gcc", with(library, "-ftls-model=local-dynamic"), ThreadLocal{Access: AccessIndex}},
		"x86-64, descriptor":              {"gcc", with(library, "-mtls-dialect=gnu2"), ThreadLocal{Access: AccessDescriptor}},
		"x86-64, initial-exec":            {"gcc", with(library, "-ftls-model=initial-exec"), ThreadLocal{Access: AccessOffset}},
		"x86-64, initial-exec, DT_HASH":   {"gcc", with(library, "-ftls-model=initial-exec", "-Wl,--hash-style=sysv"), ThreadLocal{Access: AccessOffset}},
		"arm64, program":                  {"aarch64-linux-gnu-gcc", program, ThreadLocal{Access: AccessStatic, IsProgram: true}},
		"arm64, index":                    {"aarch64-linux-gnu-gcc", with(library, "-mtls-dialect=trad"), ThreadLocal{Access: AccessIndex, Offset: OffsetBeside}},
		"arm64, descriptor":               {"aarch64-linux-gnu-gcc", library, ThreadLocal{Access: AccessDescriptor}},
		"arm64, initial-exec":             {"aarch64-linux-gnu-gcc", with(library, "-ftls-model=initial-exec"), ThreadLocal{Access: AccessOffset}},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := exec.LookPath(c.compiler); err != nil {
				t.Skipf("needs a compiler: %v", err)
			}
			v, err := threadLocalOf(t, c.compiler, c.flags...)
			require.NoError(t, err)
			require.NotZero(t, v.Address)
			if v.Access == AccessStatic {
				// Where the block, which is 16 bytes, begins.
				require.Equal(t, map[string]uint64{"gcc": ^uint64(0) - 16 + 1, "aarch64-linux-gnu-gcc": 16}[c.compiler], v.Address&^15)
			}
			v.Address = 0
			if c.want.Access == AccessIndex && c.want.Offset == 0 {
				require.Less(t, v.Offset, uint64(16))
				v.Offset = 0
			}
			require.Equal(t, c.want, v)
		})
	}
}

func TestThreadLocalOfALibraryWithoutRelocationsIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "only.c")
	require.NoError(t, os.WriteFile(path, []byte("__thread void *"+variable+";"), 0o644))
	out := path + ".so"
	text, err := exec.Command("gcc", "-shared", "-fPIC", "-o", out, path).CombinedOutput()
	require.NoError(t, err, string(text))
	b, err := os.ReadFile(out)
	require.NoError(t, err)
	m, err := Open(bytes.NewReader(b), int64(len(b)))
	require.NoError(t, err)
	_, err = m.ThreadLocal(variable)
	require.ErrorIs(t, err, ErrNoAccess)
	_, err = m.ThreadLocal("another")
	require.ErrorIs(t, err, ErrNoSymbols)
}

// withThreadLocal is a program with the variable "v" in symbol 1.
func withThreadLocal() *builder {
	f := newBuilder().programs(3).
		program(0, elf.PT_LOAD, elf.PF_R|elf.PF_X, 0, 0, 4096, 4096).
		program(1, elf.PT_DYNAMIC, elf.PF_R, 512, 512, 256, 256).
		program(2, elf.PT_TLS, elf.PF_R, 2048, 2048, 64, 64).grown(4096).
		u16(18, uint16(elf.EM_X86_64)).u16(16, uint16(elf.ET_EXEC)).
		dyn(0, elf.DT_SYMTAB, 1024).dyn(1, elf.DT_STRTAB, 1200).dyn(2, elf.DT_HASH, 1300).
		dyn(3, elf.DT_RELA, 1400).dyn(4, elf.DT_RELASZ, 0)
	f.b[1201] = 'v'
	f.b[1024+24+4] = byte(elf.STT_TLS)
	f.b[1024+24+6] = 1
	// One bucket, two symbols; the bucket and the chain of symbol 1.
	return f.u32(1024+24, 1).u64(1024+24+8, 8).u32(1300, 1).u32(1304, 2).u32(1308, 1)
}

func TestHostileThreadLocals(t *testing.T) {
	of := func(f *builder) (ThreadLocal, error) {
		m, err := Open(bytes.NewReader(f.b), int64(len(f.b)))
		require.NoError(t, err)
		return m.ThreadLocal("v")
	}
	v, err := of(withThreadLocal())
	require.NoError(t, err)
	require.Equal(t, AccessStatic, v.Access)

	var limit *LimitError
	for name, f := range map[string]*builder{
		"a chain that is a ring":    withThreadLocal().u32(1024+24, 3).u32(1316, 1), // symbol 1 follows itself, and has another name
		"2^59 relocations":          withThreadLocal().dyn(4, elf.DT_RELASZ, ^uint64(0)),
		"relocations beyond":        withThreadLocal().dyn(4, elf.DT_RELASZ, 24000),
		"relocations nowhere":       withThreadLocal().dyn(3, elf.DT_RELA, 1<<50).dyn(4, elf.DT_RELASZ, 24),
		"symbols nowhere":           withThreadLocal().dyn(0, elf.DT_SYMTAB, 1<<50),
		"a block aligned to 3":      withThreadLocal().u64(64+2*56+48, 3),
		"a machine that is unknown": withThreadLocal().u16(18, 9999),
	} {
		t.Run(name, func(t *testing.T) {
			begin := processorTime(t)
			_, err := of(f)
			require.Error(t, err)
			require.True(t, errors.As(err, &limit) || errors.Is(err, ErrMalformed) || errors.Is(err, ErrUnsupported), err)
			require.Less(t, processorTime(t)-begin, time.Second)
		})
	}
}

// A variable that is not exported has a relocation without a name, of the kinds that compilers
// write for libraries.
func TestThreadLocalBlockIsFoundAsCompiled(t *testing.T) {
	path := filepath.Join(t.TempDir(), "own.c")
	source := `static __thread char first[40]; static __thread void *second;
void *set(void *p) { first[0]++; second = p; return &second; }`
	require.NoError(t, os.WriteFile(path, []byte(source), 0o644))
	for name, c := range map[string]struct {
		compiler string
		flags    []string
		want     Access
	}{
		"x86-64, index":        {"gcc", nil, AccessIndex},
		"x86-64, descriptor":   {"gcc", []string{"-mtls-dialect=gnu2"}, AccessDescriptor},
		"x86-64, initial-exec": {"gcc", []string{"-ftls-model=initial-exec"}, AccessOffset},
		"arm64, index":         {"aarch64-linux-gnu-gcc", []string{"-mtls-dialect=trad"}, AccessIndex},
		"arm64, descriptor":    {"aarch64-linux-gnu-gcc", nil, AccessDescriptor},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := exec.LookPath(c.compiler); err != nil {
				t.Skipf("needs a compiler: %v", err)
			}
			out := filepath.Join(t.TempDir(), "own.so")
			text, err := exec.Command(c.compiler, append([]string{"-O1", "-shared", "-fPIC", "-o", out, path}, c.flags...)...).CombinedOutput()
			require.NoError(t, err, string(text))
			b, err := os.ReadFile(out)
			require.NoError(t, err)
			m, err := Open(bytes.NewReader(b), int64(len(b)))
			require.NoError(t, err)
			block, err := m.ThreadLocalBlock()
			require.NoError(t, err)
			require.Equal(t, c.want, block.Variable.Access)
			require.NotZero(t, block.Variable.Address)
			require.EqualValues(t, 48, block.Size)
			require.Less(t, block.Offset, block.Size)
		})
	}
}

func TestHostileThreadLocalBlocks(t *testing.T) {
	relocation := func(info, addend uint64) *builder {
		return withThreadLocal().dyn(4, elf.DT_RELASZ, 24).u64(1400, 2100).u64(1408, info).u64(1416, addend)
	}
	index := uint64(elf.R_X86_64_DTPMOD64)
	for name, c := range map[string]struct {
		file *builder
		ok   bool
	}{
		"the module's own":          {relocation(index, 0), true},
		"of a symbol":               {relocation(1<<32|index, 0), false},
		"behind the block":          {relocation(uint64(elf.R_X86_64_TLSDESC), 64), false},
		"none":                      {withThreadLocal(), false},
		"2^59 relocations":          {withThreadLocal().dyn(4, elf.DT_RELASZ, ^uint64(0)), false},
		"a machine that is unknown": {relocation(index, 0).u16(18, 9999), false},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := Open(bytes.NewReader(c.file.b), int64(len(c.file.b)))
			require.NoError(t, err)
			block, err := m.ThreadLocalBlock()
			if !c.ok {
				require.Error(t, err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, ThreadLocalBlock{Variable: ThreadLocal{Access: AccessIndex, Address: 2100}, Size: 64}, block)
		})
	}
}
