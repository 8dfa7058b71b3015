// SPDX-License-Identifier: Apache-2.0

package symbols

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// late is a file of ELF that has as much to be searched as is read before its last header turns out to be malformed.
func late(t *testing.T) string {
	t.Helper()
	const headers, notes = 1 << 10, 1 << 16
	b := make([]byte, 64+56*headers+notes)
	le := binary.LittleEndian
	copy(b, "\x7fELF\x02\x01\x01")
	for at, v := range map[int]uint16{16: 3, 18: 62, 54: 56, 56: headers} {
		le.PutUint16(b[at:], v)
	}
	le.PutUint64(b[32:], 64)
	for i := range headers {
		h := b[64+56*i:]
		le.PutUint32(h, 4) // PT_NOTE
		le.PutUint64(h[8:], 64+56*headers)
		le.PutUint64(h[32:], notes)
	}
	last := b[64+56*(headers-1):] // a segment that is larger in the file than in memory
	le.PutUint32(last, 1)
	le.PutUint64(last[40:], 1)
	path := filepath.Join(t.TempDir(), "libx.so")
	require.NoError(t, os.WriteFile(path, b, 0o600))
	return path
}

// A tenant maps a file that is no library, in many places: it is read once, for the tenant's allowance, and not beyond it.
func TestFilesThatAreNoLibrariesAreReadOnce(t *testing.T) {
	p := &run{library: late(t), there: map[uint32]bool{11: true, 12: true}, device: 1}
	r := NewResolver(p)
	at := func(pid uint32) uint64 { return p.mapping(pid).Start + 0x100 }
	r.spent.Take(p.Tenant(11), 2*readBurst, time.Now())
	f, isFinal := r.frame(1, 11, at(11), true, time.Time{})
	require.Equal(t, "0x100", f.Function)
	require.False(t, isFinal, "its tenant has cost too much")
	require.Zero(t, r.files.byKey.Len())

	r.spent.Clear()
	r.now = func() time.Time { return time.Now().Add(lookAgain) }
	_, isFinal = r.frame(1, 11, at(11), true, time.Time{})
	require.True(t, isFinal)
	require.Equal(t, 1, r.spent.Len(), "it is counted")
	require.Equal(t, 1, r.files.byKey.Len())
	r.spent.Clear()
	r.Frame(2, 12, at(12), true)
	require.Zero(t, r.spent.Len(), "it is not read again")
}

// The same where the files of a process are read when it starts.
func TestLearningIsPaidFor(t *testing.T) {
	p := &run{library: late(t), there: map[uint32]bool{}, device: 1}
	r := NewResolver(p)
	r.learned.Burst = openCost + checkCost
	p.start(t, r, 11)
	require.Equal(t, 1, p.opened)
	require.Positive(t, r.learned.Pause(p.Tenant(11), r.now()), "more than an ordinary file")
	r.learned.Clear()
	p.start(t, r, 12)
	require.Equal(t, 1, p.opened, "it is known")
}

// Names are unpacked and demangled for the allowance of their tenant, too.
func TestNamingIsPaidFor(t *testing.T) {
	c := &containers{libraries: map[uint32]string{11: code(t, "a", "b")}}
	c.roots = map[uint32]string{hostPID: t.TempDir(), 11: t.TempDir()}
	r := NewResolver(c)
	file, err := c.Open(11, c.mapping(11))
	require.NoError(t, err)
	defer file.Close()
	second := c.mapping(11).Start + functionOf(t, file, "b").offset
	require.Equal(t, "a", c.nameAt(t, r, 11, "a"))
	r.spent.Clear()
	r.spent.Take(11, 2*readBurst, time.Now())
	f, isFinal := r.frame(11, 11, second, true, time.Time{})
	require.Regexp(t, "^0x", f.Function)
	require.False(t, isFinal)
	require.Equal(t, "a", c.nameAt(t, r, 11, "a"), "that is known")
	r.spent.Clear()
	f, isFinal = r.frame(11, 11, second, true, time.Time{})
	require.Equal(t, "b", f.Function)
	require.True(t, isFinal)
	require.Equal(t, 1, r.spent.Len(), "it is counted")
}
