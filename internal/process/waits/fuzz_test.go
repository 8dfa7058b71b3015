// SPDX-License-Identifier: Apache-2.0

package waits

import (
	"bytes"
	"strings"
	"testing"
)

func FuzzParseSyscall(f *testing.F) {
	f.Add("202 0x7f00 0x80 0x0 0x0 0x0 0xffffffff 0x7ffc 0x7f01\n")
	f.Add("-1 0x7ffc 0x7f01\n")
	f.Add("running\n")
	f.Fuzz(func(t *testing.T, text string) {
		c, ok := parseSyscall(text)
		if ok && (c.number < 0 || len(strings.Fields(text)) != 9) {
			t.Fatalf("%+v of %q", c, text)
		}
		callOf(c.number)
	})
}

// A thread chooses the descriptors and addresses of its system call, and its memory what is there:
// none of these processes exists.
func FuzzArguments(f *testing.F) {
	f.Add(uint16(7), uint64(0), uint64(1<<40), uint64(0))
	f.Add(uint16(23), uint64(1024), uint64(1<<63), uint64(1))
	f.Fuzz(func(t *testing.T, number uint16, a, b, c uint64) {
		known, ok := callOf(int(number))
		if !ok {
			return
		}
		r := NewReader(t.TempDir())
		for _, res := range known.read(r, 1<<30, [6]uint64{a, b, c}) {
			if res.Kind == "" {
				t.Fatalf("%s(%#x, %#x, %#x) waits for a resource without a kind", known.name, a, b, c)
			}
			if e := r.Ends(1<<30, res); len(e.PIDs) > 0 {
				t.Fatalf("%+v of a machine without processes", e)
			}
		}
	})
}

func FuzzReadTCP(f *testing.F) {
	const line = "   0: 0100007F:1F90 0100007F:D2F0 01 00000000:00000000 00:00000000 00000000     0        0 4242 1\n"
	f.Add([]byte(line))
	f.Add([]byte("  sl  local_address\n" + strings.ReplaceAll(line, "0100007F", "00000000000000000000000001000000")))
	f.Fuzz(func(t *testing.T, b []byte) {
		n := &network{unixPeers: map[string]string{}, remote: map[string]string{}, tcp: map[string]string{}, local: map[string]string{}}
		n.readTCP(bytes.NewReader(b))
		for id, remote := range n.remote {
			if n.local[id] == "" || remote == "" || !strings.HasPrefix(id, "socket:[") {
				t.Fatalf("%q: from %q to %q", id, n.local[id], remote)
			}
		}
	})
}
