// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject"
)

// readSnapshot has Python print the bytes in use by innermost Python function, and the sizes of
// all segments.
const readSnapshot = `
import collections, json, pickle, sys
segments = pickle.load(open(sys.argv[1], "rb"))["segments"]
used = collections.Counter()
for block in (b for s in segments for b in s["blocks"] if b["state"] == "active_allocated"):
    used[next(f["name"] for f in block["frames"] if f["filename"].endswith("steps.py"))] += block["size"]
json.dump({"used": used, "sizes": sorted(s["total_size"] for s in segments)}, sys.stdout)
`

// TestASnapshotByTheProgramsForOldKernels: they follow no pool of PyTorch's, and what they know is
// written all the same. They run on newer kernels, too.
func TestASnapshotByTheProgramsForOldKernels(t *testing.T) {
	s := subject.StartSteps(t)
	s.Load()
	path := filepath.Join(t.TempDir(), "s.pickle")
	r := launch(t, exec.Command(program(t), "run", "cuda_alloc_linux_5_10", "--host", "--pid", fmt.Sprint(s.PID()),
		"-o", "allocs:json,attachments:json,drops:json", "--snapshot-out", path))
	r.waitAttached(s.PID())
	s.Do("alloc weights 3 %d", 4*mib)
	s.Do("alloc kv_cache 2 %d", 32*mib)
	s.Do("free weights 1")
	r.waitRows("all calls", s.PID(), func(rows []row) bool {
		var freed uint64
		for _, x := range rows {
			freed += x.FreedObjects
		}
		return freed == 1 && allocs(5)(rows)
	})
	code, _ := r.interrupt()
	require.Zero(t, code, r.errors())

	out, err := exec.Command("python3", "-c", readSnapshot, path).Output()
	require.NoError(t, err)
	var have struct {
		Used  map[string]int64
		Sizes []int64
	}
	require.NoError(t, json.Unmarshal(out, &have), string(out))
	require.Equal(t, []int64{4 * mib, 4 * mib, 32 * mib, 32 * mib}, have.Sizes)
	require.Equal(t, map[string]int64{"weights": 8 * mib, "kv_cache": 64 * mib}, have.Used)
}
