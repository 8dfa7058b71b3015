// SPDX-License-Identifier: Apache-2.0

package holder

import (
	"strings"
	"testing"
)

// The name of a process may hold anything but a zero: the fields behind it stay those of the kernel.
func FuzzParseStat(f *testing.F) {
	f.Add("python3", " 100 7 7 0 -1 0 0 0 0 0 300 200 0 0 20 0 1 0 4242 0\n")
	f.Add(") S 1 (", " 1\n")
	f.Add("a\nb) (c", strings.Repeat(" 9", 40))
	f.Fuzz(func(t *testing.T, comm, rest string) {
		if strings.ContainsAny(rest, "()") {
			return // the kernel writes none behind the name
		}
		s, ok := parseStat([]byte("42 (" + comm + ") S" + rest))
		if ok && (s.Comm != comm || s.Mode != 'S' || s.Start%tick != 0 || s.Start < 0 || s.CPU < 0) {
			t.Fatalf("%+v of %q", s, comm)
		}
		_ = isKilled([]byte(comm + rest))
		_, _ = parseStat([]byte(rest))
	})
}
