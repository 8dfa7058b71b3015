// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject"
)

// A mark is set when calls begin to have a function on their stack: not at calls of others, not
// when the function's memory is freed, and again at its next calls.
func TestMarkOnFrame(t *testing.T) {
	s := subject.StartSteps(t)
	s.Load()
	marks := filepath.Join(t.TempDir(), "m")
	r := start(t, "--pid", fmt.Sprint(s.PID()), "--mark-out", marks, "--mark-on-frame", "kv_*", "--mark-dump")
	r.waitAttached(s.PID())
	exists := func(n int) bool {
		_, err := os.Stat(fmt.Sprintf("%s.%d.pb.gz", marks, n))
		return err == nil
	}
	counts := func(frame string, allocs, frees uint64) {
		t.Helper()
		r.waitRows(frame, s.PID(), func(rows []row) bool {
			return slices.ContainsFunc(rows, func(r row) bool {
				return r.Frame == subject.Frame(t, frame) && r.AllocObjects == allocs && r.FreedObjects == frees
			})
		})
	}
	s.Do("alloc weights 2 1000")
	counts("weights", 2, 0)
	require.False(t, exists(1), "another function's calls")
	s.Do("alloc kv_cache 3 5000")
	counts("kv_cache", 3, 0)
	require.True(t, exists(1), "rows are printed after the mark of their interval")
	s.Do("free kv_cache 1")
	counts("kv_cache", 3, 1)
	require.False(t, exists(2), "no call has the function")
	s.Do("alloc kv_cache 1 6000")
	counts("kv_cache", 4, 1)
	require.True(t, exists(2))
	code, _ := r.interrupt()
	require.Zero(t, code, r.errors())
	require.Contains(t, r.errors(), subject.Frame(t, "kv_cache")+" is on the stack of a call")

	// Beside it, where all threads were.
	stacks, err := os.ReadFile(marks + ".1.stacks.txt")
	require.NoError(t, err, r.errors())
	require.Regexp(t, fmt.Sprintf(`(?s)^process %d thread %d, waits in read\n.*    main \(steps\.py:\d+\)\n    <module> \(steps\.py:\d+\)\n`, s.PID(), s.PID()), string(stacks))

	// A mark has the memory of its moment.
	for n, held := range map[int]int{1: 3 * 5000, 2: 2*5000 + 6000} {
		out, err := exec.Command(program(t), "report", fmt.Sprintf("%s.%d.pb.gz", marks, n), "-o", "json").CombinedOutput()
		require.NoError(t, err, string(out))
		require.Regexp(t, fmt.Sprintf(`"kv_cache [^}]*"self":%d,`, held), string(out))
		require.Regexp(t, `"weights [^}]*"self":2000,`, string(out))
	}
}
