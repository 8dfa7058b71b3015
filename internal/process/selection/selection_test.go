// SPDX-License-Identifier: Apache-2.0

package selection

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParse(t *testing.T) {
	pids, err := Parse(" 12,7")
	require.NoError(t, err)
	require.Equal(t, []uint32{12, 7}, pids)
	pids, err = Parse("12\n7 9\n")
	require.NoError(t, err)
	require.Equal(t, []uint32{12, 7, 9}, pids, "what pgrep prints")
	none, err := Parse("")
	require.NoError(t, err)
	require.Nil(t, none)
	for _, wrong := range []string{"0", "-1", "x", "1,,2", "4294967296"} {
		_, err := Parse(wrong)
		require.Error(t, err, wrong)
	}
}

// TestDescendants: all generations, a command name made to mislead, and a loop,
// which a procfs that is read while pids are reused may show.
func TestDescendants(t *testing.T) {
	proc := t.TempDir()
	for pid, stat := range map[int]string{
		10: "10 (a) S 1 x", 11: "11 (b) S 99) S 10 x", 12: "12 (c) R 11 x", 13: "13 (d) S 1 x",
		20: "20 (e) S 21 x", 21: "21 (f) S 20 x", 30: "30 broken",
	} {
		dir := filepath.Join(proc, strconv.Itoa(pid))
		require.NoError(t, os.Mkdir(dir, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "stat"), fmt.Append(nil, stat), 0o644))
	}
	require.NoError(t, os.Mkdir(filepath.Join(proc, "sys"), 0o755))
	got, err := Descendants(proc, []uint32{10, 20})
	require.NoError(t, err)
	slices.Sort(got)
	require.Equal(t, []uint32{11, 12, 21}, got)
}
