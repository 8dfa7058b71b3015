// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// ofMemory is the name of a file in /proc/PID with what is in a process's memory.
var ofMemory = regexp.MustCompile(`"[^"\n]*\b(environ|cmdline|mem)"`)

// A process decides how long its arguments are, and whether its memory can be read at all: one package reads that,
// and bounds it.
func TestMemoryIsReadInOnePlace(t *testing.T) {
	var found []string
	for _, dir := range []string{"cmd", "internal", "operators"} {
		require.NoError(t, fs.WalkDir(os.DirFS("../.."), dir, func(name string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() || filepath.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
				return err
			}
			if ofMemory.MatchString(source(t, filepath.Join("../..", name))) {
				found = append(found, name)
			}
			return nil
		}))
	}
	require.Equal(t, []string{
		"internal/elf/vdso/vdso.go", // this program's own
		"internal/process/memory/memory.go",
		"internal/process/memory/start.go",
		"internal/process/pages/pages.go", // its caller bounds all of it at once
	}, found)
}
