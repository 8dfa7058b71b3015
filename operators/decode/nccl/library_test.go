// SPDX-License-Identifier: Apache-2.0

package nccl

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/elf/module"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
)

// Instructions as they are in the real functions.
var (
	endbr64 = []byte{0xf3, 0x0f, 0x1e, 0xfa}
	rank    = []byte{0x41, 0x8b, 0x84, 0x24, 0x50, 0x42, 0x03, 0x00} // mov 0x34250(%r12),%eax
	framed  = []byte{0x8b, 0x85, 0x50, 0x42, 0x03, 0x00}             // mov 0x34250(%rbp),%eax
	below   = []byte{0x8b, 0x85, 0xb0, 0xbd, 0xfc, 0xff}             // mov -0x34250(%rbp),%eax
	size    = []byte{0x8b, 0x87, 0x54, 0x42, 0x03, 0x00}             // mov 0x34254(%rdi),%eax
	local   = []byte{0x8b, 0x84, 0x24, 0x50, 0x42, 0x03, 0x00}       // mov 0x34250(%rsp),%eax
	store   = []byte{0xc7, 0x07, 0xbb, 0x56, 0x00, 0x00}             // movl $22203,(%rdi)
	ret     = []byte{0xc3}
)

func code(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

func TestFieldIsTheOnlyOneRead(t *testing.T) {
	at, ok := fieldIn(code(endbr64, local, rank, ret))
	require.True(t, ok)
	require.EqualValues(t, 0x34250, at)
	at, ok = fieldIn(code(endbr64, below, framed, ret))
	require.True(t, ok, "rbp is any register without frame pointers")
	require.EqualValues(t, 0x34250, at)
	_, ok = fieldIn(code(endbr64, rank, size, ret))
	require.False(t, ok, "two of them: which one?")
	_, ok = fieldIn(code(endbr64, local, ret))
	require.False(t, ok)
	// The function after it does not count.
	padding := bytes.Repeat([]byte{0x90}, 16-(len(endbr64)+len(rank)+1)%16)
	at, ok = fieldIn(code(endbr64, rank, ret, padding, endbr64, size))
	require.True(t, ok)
	require.EqualValues(t, 0x34250, at)
}

func TestVersionIsTheConstant(t *testing.T) {
	require.Equal(t, 22203, versionIn(code(endbr64, store, ret)))
	require.Zero(t, versionIn(code(endbr64, rank, ret)))
	require.Equal(t, "NCCL 2.22.3", (&Library{Version: 22203}).String())
}

func FuzzCode(f *testing.F) {
	f.Add(code(endbr64, rank, store, ret))
	f.Add([]byte{0xf3, 0x0f, 0x1e})
	f.Fuzz(func(t *testing.T, b []byte) {
		fieldIn(b)
		versionIn(b)
	})
}

func TestOtherFilesAreRefusedAsLibraries(t *testing.T) {
	b := []byte("no library at all, but long enough for a header of one, which has 64 bytes")
	_, err := Inspect(bytes.NewReader(b), int64(len(b)), nil)
	require.ErrorIs(t, err, module.ErrNotELF)
}

// silent is a file one of whose reads has no answer.
type silent struct {
	*bytes.Reader
	reads, fails int
}

func (s *silent) ReadAt(b []byte, at int64) (int, error) {
	if s.reads++; s.reads == s.fails {
		return 0, procmaps.ErrHangs
	}
	return s.Reader.ReadAt(b, at)
}

// TestALibraryThatHangsIsNotOneWithoutFunctions: whichever of its reads it is.
func TestALibraryThatHangsIsNotOneWithoutFunctions(t *testing.T) {
	b, err := os.ReadFile("/bin/sleep")
	require.NoError(t, err)
	whole := &silent{Reader: bytes.NewReader(b)}
	_, err = Inspect(whole, int64(len(b)), []string{"ncclAllReduce"})
	require.NoError(t, err)
	require.Greater(t, whole.reads, 3)
	for n := 1; n <= whole.reads; n++ {
		_, err := Inspect(&silent{Reader: bytes.NewReader(b), fails: n}, int64(len(b)), []string{"ncclAllReduce"})
		require.ErrorIs(t, err, procmaps.ErrHangs, "read %d of %d", n, whole.reads)
	}
}

// memory is that of a process, from an address on.
type fakeMemory struct {
	at    int64
	bytes []byte
}

func (m fakeMemory) ReadAt(to []byte, at int64) (int, error) {
	if at < m.at || at+int64(len(to)) > m.at+int64(len(m.bytes)) {
		return 0, errors.New("bad address")
	}
	return copy(to, m.bytes[at-m.at:]), nil
}

func TestOnlyKnownCommunicatorsAreQueried(t *testing.T) {
	l := &Library{Version: 22907, hash: 64}
	m := fakeMemory{0x1000, make([]byte, 128)}
	put := func(at int, v uint64) { binary.LittleEndian.PutUint64(m.bytes[at:], v) }
	_, err := l.Identify(m, 0x1000)
	require.ErrorIs(t, err, ErrNotReady, "no magic number")
	put(0, magic)
	_, err = l.Identify(m, 0x1000)
	require.ErrorIs(t, err, ErrNotReady, "no hash")
	put(64, 0xabcdef)
	put(72, 4<<32|3)
	put(80, 1)
	id, err := l.Identify(m, 0x1000)
	require.NoError(t, err)
	require.Equal(t, Identity{Hash: 0xabcdef, Rank: 3, Size: 4, Device: 1}, id)
	put(72, 4<<32|4)
	_, err = l.Identify(m, 0x1000)
	require.ErrorIs(t, err, ErrNotReady, "rank 4 of 4")
	_, err = l.Identify(m, 0x2000)
	require.ErrorContains(t, err, "bad address")
	_, err = l.Identify(m, 1<<63)
	require.ErrorIs(t, err, ErrNotReady)
	l.layout = ErrLayout
	_, err = l.Identify(m, 0x1000)
	require.ErrorIs(t, err, ErrLayout)
}

func TestWarningsSayWhatStillWorks(t *testing.T) {
	require.Empty(t, Warnings(&Library{Version: 22907, Has: 28}, "/usr/lib/libnccl.so.2"))
	require.Equal(t, []string{
		"/usr/lib/libnccl.so.2 (NCCL 2.17.1) has no ncclCommSplit, ncclMemAlloc; its other 20 functions are traced",
		"/usr/lib/libnccl.so.2 (NCCL 2.17.1): communicators created before attach will have no identity: " +
			"layout of communicators is not known. Later ones are traced; those of ncclCommSplit are judged only if all ranks of the first one are seen, " +
			"or the program asks for its rank and their number",
	}, Warnings(&Library{Version: 21701, Has: 20, Missing: []string{"ncclCommSplit", "ncclMemAlloc"}, layout: ErrLayout}, "/usr/lib/libnccl.so.2"))
}

// A process has put there what it likes.
func FuzzIdentify(f *testing.F) {
	whole := make([]byte, 128)
	binary.LittleEndian.PutUint64(whole, magic)
	binary.LittleEndian.PutUint64(whole[64:], 0xabcdef)
	binary.LittleEndian.PutUint64(whole[72:], 4<<32|3)
	f.Add(whole, uint64(0x1000), uint64(64))
	f.Add([]byte{}, ^uint64(0), uint64(0))
	f.Fuzz(func(t *testing.T, b []byte, handle, hash uint64) {
		l := &Library{Version: newest, hash: hash % (1 << 31)} // an offset of 32 bits, as the code has it
		id, err := l.Identify(fakeMemory{0x1000, b}, handle)
		if err == nil && (id.Hash == 0 || id.Rank < 0 || id.Rank >= id.Size || id.Size > maxRanks) {
			t.Fatalf("%+v", id)
		}
	})
}
