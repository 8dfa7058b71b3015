// SPDX-License-Identifier: Apache-2.0

package file

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDeviceIsWrittenAndNotReplaced(t *testing.T) {
	o, err := Prepare("/dev/null")
	require.NoError(t, err)
	require.NotNil(t, o.device)
	require.NoError(t, o.Commit(func(w io.Writer) error {
		_, err := io.WriteString(w, "x")
		return err
	}))
	info, err := os.Stat("/dev/null")
	require.NoError(t, err)
	require.NotZero(t, info.Mode()&os.ModeCharDevice)
}

func TestNothingIsLeftOfAFileThatWasNotFinished(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "p.pb.gz")
	o, err := Prepare(path)
	require.NoError(t, err)
	full := errors.New("no space left on device")
	left := func() int {
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		return len(entries)
	}
	require.Zero(t, left(), "the process may be killed from here on")
	require.ErrorIs(t, o.Commit(func(io.Writer) error { return full }), full)
	require.Zero(t, left())
}
