// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Root writes the report, perhaps into a directory of another user.
func TestTheReportFollowsNoLink(t *testing.T) {
	dir := t.TempDir()
	k := &kit{options: options{out: filepath.Join(dir, "out")}}
	require.NoError(t, k.write())
	for _, name := range []string{"report.md", "report.json"} {
		path := filepath.Join(k.out, name)
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode())

		precious := filepath.Join(dir, "precious")
		require.NoError(t, os.WriteFile(precious, []byte("precious"), 0o600))
		require.NoError(t, os.Remove(path))
		require.NoError(t, os.Symlink(precious, path))
		require.ErrorContains(t, k.write(), "is a symbolic link")
		text, err := os.ReadFile(precious)
		require.NoError(t, err)
		require.Equal(t, "precious", string(text))
		require.NoError(t, os.Remove(path))
		require.NoError(t, k.write())
	}
}
