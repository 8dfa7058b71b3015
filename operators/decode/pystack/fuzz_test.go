// SPDX-License-Identifier: Apache-2.0

package pystack

import (
	"bytes"
	"testing"
	"unicode"
	"unicode/utf8"
)

// A thread chooses its name, and its interpreter's memory what the record has of it.
func FuzzDecode(f *testing.F) {
	f.Add(make([]byte, recordSize))
	f.Add(bytes.Repeat([]byte("\xff\x1b]0;"), 2*recordSize/4))
	f.Fuzz(func(t *testing.T, b []byte) {
		records, err := Decode(b)
		if (err == nil) != (len(b)%recordSize == 0) {
			t.Fatalf("%d bytes: %v", len(b), err)
		}
		for _, th := range toThreads(records) {
			for _, s := range []string{th.comm, th.processComm, th.wchan, th.state(), th.syscall(), th.gil(), th.version()} {
				if !utf8.ValidString(s) {
					t.Fatalf("%q", s)
				}
			}
			th.PID = 1<<32 - 1 // no process has it
			for _, r := range commandLine("/proc", &th) {
				if unicode.IsControl(r) {
					t.Fatalf("%q", r)
				}
			}
		}
	})
}
