// SPDX-License-Identifier: Apache-2.0

package spans

import (
	"bytes"
	"encoding/binary"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
)

func field(number protowire.Number, content []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), content)
}

// names is the AnyValue of a list of strings.
func names(all ...string) (array []byte) {
	for _, name := range all {
		array = append(array, field(1, field(1, []byte(name)))...)
	}
	return field(5, array)
}

func keyValue(key string, value []byte) []byte {
	return append(field(1, []byte(key)), field(2, value)...)
}

func TestNamesOfAttributesAreFoundInEitherMessage(t *testing.T) {
	list := keyValue(keyMap, names("http.method", "http.route"))
	other := keyValue("service.name", field(1, []byte("x")))
	want := []string{"http.method", "http.route"}
	resource := append(field(1, other), protowire.AppendVarint(protowire.AppendTag(nil, 2, protowire.VarintType), 7)...)
	require.Equal(t, want, parseKeys(append(field(1, resource), append(field(2, other), field(2, list)...)...)), "a ProcessContext")
	require.Equal(t, want, parseKeys(append(field(1, other), field(1, list)...)), "a Resource")
	require.Empty(t, parseKeys(field(2, other)))
	require.Empty(t, parseKeys(nil))
	require.Equal(t, []string{"", "a"}, parseKeys(field(2, keyValue(keyMap, names("", "a")))), "a number without a name")
}

// region is a part of the memory of a process.
type region struct {
	at    uint64
	bytes []byte
	reads int
	// before is called before each read.
	before func(reads int)
}

func (r *region) ReadAt(b []byte, at int64) (int, error) {
	if r.reads++; r.before != nil {
		r.before(r.reads)
	}
	if uint64(at) < r.at || uint64(at)+uint64(len(b)) > r.at+uint64(len(r.bytes)) {
		return 0, io.EOF
	}
	return copy(b, r.bytes[uint64(at)-r.at:]), nil
}

func published(payload []byte) *region {
	r := &region{at: 4096, bytes: append(make([]byte, contextHeader), payload...)}
	copy(r.bytes, contextSignature)
	binary.NativeEndian.PutUint32(r.bytes[8:], contextVersion)
	binary.NativeEndian.PutUint32(r.bytes[12:], uint32(len(payload)))
	binary.NativeEndian.PutUint64(r.bytes[16:], 1)
	binary.NativeEndian.PutUint64(r.bytes[24:], 4096+contextHeader)
	return r
}

func TestContextThatChangesIsReadAgain(t *testing.T) {
	payload, changed, err := readContext(published([]byte("abc")), 4096)
	require.NoError(t, err)
	require.False(t, changed)
	require.Equal(t, []byte("abc"), payload)

	writing := published([]byte("abc"))
	writing.before = func(reads int) { writing.bytes[16] = byte(reads) }
	_, changed, err = readContext(writing, 4096)
	require.NoError(t, err)
	require.True(t, changed)

	unready := published(nil)
	unready.bytes[16] = 0
	_, changed, err = readContext(unready, 4096)
	require.NoError(t, err)
	require.True(t, changed)

	for name, edit := range map[string]func([]byte){
		"signature": func(b []byte) { b[0] = 'x' },
		"version":   func(b []byte) { b[8] = 1 },
		"size":      func(b []byte) { binary.NativeEndian.PutUint32(b[12:], maxContext+1) },
		"payload":   func(b []byte) { binary.NativeEndian.PutUint64(b[24:], 1<<63) },
	} {
		r := published([]byte("abc"))
		edit(r.bytes)
		_, _, err := readContext(r, 4096)
		require.Error(t, err, name)
	}
	_, _, err = readContext(published(nil), 1)
	require.Error(t, err)
}

// What the example publishes is read from a process that runs it, also what it adds later.
func TestNamesAreThoseThatAProcessPublishes(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("reading the memory of other processes needs root; the uid is not 0")
	}
	dir := t.TempDir()
	out, err := exec.Command("make", "-s", "-C", "../../../examples/otel", "OUT="+dir).CombinedOutput()
	require.NoError(t, err, string(out))
	cmd := exec.Command("python3", "-c", `
import sys
sys.path.insert(0, "../../../examples/otel")
import context
first = context.Publisher(sys.argv[1])
sys.stdin.readline()
del first  # and its mapping: a process has one context
second = context.Publisher(sys.argv[1], ["a", "http.route"])
sys.stdin.readline()
`, filepath.Join(dir, "libpublisher.so"))
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	m := &fakeMemory{sources: map[uint32]Source{}}
	f := NewFollower(Config{Processes: procmaps.NewCache(procmaps.Config{ProcFS: "/proc"}), Table: m, Attributes: []string{"http.route", "b"}})
	require.NoError(t, f.Start(t.Context()))
	defer f.Stop()
	pid := cmd.Process.Pid
	require.Eventually(t, func() bool { return m.of(pid).Access != 0 }, 30*time.Second, 10*time.Millisecond)
	require.Equal(t, noKeys, m.of(pid).Keys)
	_, err = stdin.Write([]byte("\n"))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return m.of(pid).Keys == [4]uint8{1, noKey, noKey, noKey} }, 20*time.Second, 10*time.Millisecond,
		"the number of an attribute that is published later")
}

func FuzzContext(f *testing.F) {
	f.Add(field(2, keyValue(keyMap, names("http.route"))))
	f.Add(bytes.Repeat([]byte{0x0a, 0xff}, 10))
	f.Fuzz(func(_ *testing.T, payload []byte) { parseKeys(payload) })
}
