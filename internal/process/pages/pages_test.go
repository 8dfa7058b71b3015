// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// start runs a command that prints a line when it is up, and waits for it.
func start(t *testing.T, name string, args ...string) uint32 {
	t.Helper()
	cmd := exec.Command(name, args...)
	_, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	_, err = bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	return uint32(cmd.Process.Pid)
}

func TestInterpreterIsFound(t *testing.T) {
	// ctypes resolves the symbol with the dynamic linker. A static interpreter
	// exports it, too.
	const say = `import ctypes
print(ctypes.addressof(ctypes.c_char.in_dll(ctypes.pythonapi, "_PyRuntime")), flush=True)
input()`
	cmd := exec.Command("python3", "-c", say)
	_, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	var want uint64
	_, err = fmt.Fscan(bufio.NewReader(stdout), &want)
	require.NoError(t, err)

	found, err := Python("/proc", uint32(cmd.Process.Pid))
	require.NoError(t, err)
	require.Equal(t, want, found)
}

// present counts the pages of a range that the process's page tables have.
func present(t *testing.T, pid uint32, from, to uint64) (n int) {
	t.Helper()
	f, err := os.Open(fmt.Sprintf("/proc/%d/pagemap", pid))
	require.NoError(t, err)
	defer f.Close()
	entries := make([]byte, (to-from)/uint64(os.Getpagesize())*8)
	_, err = f.ReadAt(entries, int64(from/uint64(os.Getpagesize())*8))
	require.NoError(t, err)
	for ; len(entries) > 0; entries = entries[8:] {
		n += int(binary.LittleEndian.Uint64(entries) >> 63)
	}
	return n
}

func TestMissingPagesAreFaultedIn(t *testing.T) {
	// It forgets the file mapping that the interpreter's symbols are in, when it
	// has done everything once that it does after that.
	const forget = `import ctypes, sys
libc = ctypes.CDLL(None)
libc.madvise.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
at = ctypes.addressof(ctypes.c_char.in_dll(ctypes.pythonapi, "_PyRuntime"))
maps = [(*(int(x, 16) for x in f[0].split("-")), f[2], f[5] if len(f) > 5 else "")
        for f in map(str.split, open("/proc/self/maps"))]
path = next(p for start, end, offset, p in maps if start <= at < end)
start, end = next((s, e) for s, e, offset, p in maps if p == path and int(offset, 16) == 0)
for advice in (0, 4):  # MADV_NORMAL, MADV_DONTNEED
    print(start, end, libc.madvise(start, end - start, advice), flush=True)
    sys.stdin.readline()
`
	cmd := exec.Command("python3", "-c", forget)
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	said := bufio.NewReader(stdout)
	var from, to uint64
	for lines := range 2 {
		var result int
		_, err = fmt.Fscan(said, &from, &to, &result)
		require.NoError(t, err)
		require.Zero(t, result)
		if lines == 0 {
			fmt.Fprintln(stdin)
		}
	}
	pid := uint32(cmd.Process.Pid)
	time.Sleep(100 * time.Millisecond) // until it waits for the second line
	before := present(t, pid, from, to)
	_, err = Python("/proc", pid)
	require.NoError(t, err)
	require.Greater(t, present(t, pid, from, to), before)
}

func TestOtherProgramsHaveNone(t *testing.T) {
	found, err := Python("/proc", start(t, "sh", "-c", "echo up; read x"))
	require.NoError(t, err)
	require.Zero(t, found)
	_, err = Python("/proc", 1<<31-1)
	require.ErrorIs(t, err, os.ErrNotExist)
}

// fake is a procfs with one process whose memory is a file.
func fake(t *testing.T, auxv []uint64, memory map[uint64][]uint64) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "7"), 0o755))
	words := func(values []uint64) (b []byte) {
		for _, v := range values {
			b = binary.LittleEndian.AppendUint64(b, v)
		}
		return b
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "7/auxv"), words(auxv), 0o644))
	image := make([]byte, 1<<16)
	for at, values := range memory {
		copy(image[at:], words(values))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "7/mem"), image, 0o644))
	return dir
}

func TestHostileMemoryEnds(t *testing.T) {
	// Program headers at 0x1000: PT_PHDR, PT_DYNAMIC at 0x2000, where DT_DEBUG is
	// 0x3000, whose list at 0x4000 is a circle; its module's dynamic section, at
	// 0x5000, is not terminated or has a symbol table that is one of nonsense.
	auxv := []uint64{atHeaders, 0x1000, atHeaderCount, 2}
	memory := map[uint64][]uint64{
		0x1000: {ptPhdr, 0, 0x1000, 0, 0, 0, 0, ptDynamic, 0, 0x2000},
		0x2000: {dtDebug, 0x3000, 0, 0},
		0x3008: {0x4000},
		0x4000: {0, 0, 0x5000, 0x4000},
		0x5000: {dtHash, 0x6000, dtSymbols, 0x7000, dtStrings, 0x8000, 0, 0},
		0x6000: {1, 0<<32 | 1, ^uint64(0)}, // one bucket, one word of the Bloom filter with all bits set
	}
	found, err := Python(fake(t, auxv, memory), 7)
	require.NoError(t, err)
	require.Zero(t, found)

	memory[0x6000] = []uint64{1, 1 << 32, ^uint64(0)}
	memory[0x6018] = []uint64{1 << 62} // the chain is far away
	_, err = Python(fake(t, auxv, memory), 7)
	require.NoError(t, err)

	memory[0x4000] = []uint64{0, 0, 1 << 60, 0x4000}
	_, err = Python(fake(t, auxv, memory), 7)
	require.Error(t, err, "a wild pointer is an error and no more")
}
