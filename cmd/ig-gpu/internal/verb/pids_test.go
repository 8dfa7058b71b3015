// SPDX-License-Identifier: Apache-2.0

package verb

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/cmd/ig-gpu/internal/targets"
)

func TestWithoutAProcessThoseWithCUDAAreListed(t *testing.T) {
	_, _, err := execute(t, Config{Engine: &recorder{}, ProcFS: procfs(t)}, "dump")
	require.ErrorContains(t, err, "These have CUDA or HIP mapped")
	require.Regexp(t, `(?m)^  7 .* unknown +python3 serve`, err.Error())
	require.NotContains(t, err.Error(), "\x1b", "the process decides what its command line is")
	require.NotRegexp(t, `(?m)^  8 `, err.Error())

	_, _, err = execute(t, Config{Engine: &recorder{}, ProcFS: t.TempDir()}, "dump")
	require.ErrorIs(t, err, errNoTarget)
}

// Another user's processes cannot be read without root: whether they use CUDA is unknown then.
func TestWithoutRootProcessesThatCannotBeReadAreCounted(t *testing.T) {
	root := procfs(t)
	for _, pid := range []string{"10", "11"} { // root cannot read a folder as a file, either
		require.NoError(t, os.MkdirAll(filepath.Join(root, pid, "maps"), 0o755))
	}
	_, _, err := execute(t, Config{Engine: &recorder{}, ProcFS: root}, "explain")
	require.ErrorContains(t, err, "2 processes could not be read: run it with sudo to see all")
	require.NoError(t, os.RemoveAll(filepath.Join(root, "7")))
	_, _, err = execute(t, Config{Engine: &recorder{}, ProcFS: root}, "explain")
	require.ErrorIs(t, err, errNoTarget)
	require.ErrorContains(t, err, "2 processes could not be read: run it with sudo")
}

func TestTheUserChoosesByNumberOrID(t *testing.T) {
	two := []uint32{7, 9}
	for _, c := range []struct {
		typed string
		want  uint32
	}{{"1\n", 7}, {"2\n", 9}, {"9\n", 9}, {"x\n0\n7\n", 7}, {"", 0}, {"3\n4\n5\n1\n", 0}} {
		got, err := choose(targetsOf(two...), strings.NewReader(c.typed), &bytes.Buffer{})
		if c.want == 0 {
			require.Error(t, err)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, []uint32{c.want}, got)
	}
	got, err := choose(targetsOf(9), strings.NewReader(""), &bytes.Buffer{})
	require.NoError(t, err)
	require.Equal(t, []uint32{9}, got, "the only one")
}

// Workers of a data loader are copies of their parent, with all that it has mapped.
func TestForkedWorkersAreNotChosen(t *testing.T) {
	const driver = "/usr/lib/libcuda.so.1"
	of := func(pid, parent uint32, command string, memory uint64) targets.Process {
		return targets.Process{PID: pid, Parent: parent, Command: command, Library: driver, Memory: memory}
	}
	train := of(7, 1, "python3 train.py", 1<<30)
	got := withoutForks([]targets.Process{train, of(8, 7, "python3 train.py", 0), of(9, 8, "python3 train.py", 0)})
	require.Equal(t, []targets.Process{train}, got, "the one that has memory")

	ranks := []targets.Process{of(7, 1, "launch", 0), of(8, 7, "launch", 1<<30), of(9, 7, "python3 -c spawn_main", 0), of(10, 3, "python3 serve.py", 0)}
	require.Equal(t, ranks, withoutForks(ranks), "a forked rank with memory, a program of its own, a parent that is not listed")

	train.Memory = 0 // not known, or not allocated yet
	got = withoutForks([]targets.Process{of(5, 7, "python3 train.py", 0), train})
	require.Equal(t, []uint32{7, 5}, []uint32{got[0].PID, got[1].PID})
	require.Equal(t, "(forked by 7) python3 train.py", got[1].Command)
}

func TestParentsOfTargetsAreRead(t *testing.T) {
	root := procfs(t)
	require.NoError(t, os.WriteFile(filepath.Join(root, "7/stat"), []byte("7 (python3) S 5 1 1\n"), 0o600))
	found, err := targets.Find(root)
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.EqualValues(t, 5, found[0].Parent)
}
