// SPDX-License-Identifier: Apache-2.0

package procmaps

import "strings"

// IsLibrary reports whether a file is a library, by the file's name: NAME.so, NAME.so.1, or NAME-0123abcd.so.1, as auditwheel
// renames libraries that it copies into a wheel.
func IsLibrary(path, name string) bool {
	rest, ok := strings.CutPrefix(path[strings.LastIndexByte(path, '/')+1:], name)
	if !ok {
		return false
	}
	if len(rest) > 9 && rest[0] == '-' && strings.Trim(rest[1:9], "0123456789abcdef") == "" {
		rest = rest[9:]
	}
	rest, ok = strings.CutPrefix(rest, ".so")
	return ok && (rest == "" || rest[0] == '.')
}
