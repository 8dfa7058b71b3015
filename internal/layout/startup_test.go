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

// ofStart is the name of a file in /proc/PID that may be as long as the process's address space.
var ofStart = regexp.MustCompile(`"[^"\n]*\b(environ|cmdline)"`)

// A process decides how long its arguments and its environment are: one package reads them, and bounds them.
func TestWhatAProcessWasStartedWithIsReadInOnePlace(t *testing.T) {
	var found []string
	for _, dir := range []string{"cmd", "internal", "operators"} {
		require.NoError(t, fs.WalkDir(os.DirFS("../.."), dir, func(name string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() || filepath.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
				return err
			}
			if ofStart.MatchString(source(t, filepath.Join("../..", name))) {
				found = append(found, name)
			}
			return nil
		}))
	}
	require.Equal(t, []string{"internal/process/startup/startup.go"}, found)
}
