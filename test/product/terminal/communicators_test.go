// SPDX-License-Identifier: Apache-2.0

package terminal

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/examples/simcuda/journal"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/simulated"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject"
)

// TestTopShowsCommunicators: the three for which NCCL holds most by the driver's journal, with the
// lines that made them; none before NCCL has allocated.
func TestTopShowsCommunicators(t *testing.T) {
	t.Parallel()
	driver, dir := simulated.Driver(t), t.TempDir()
	cmd := exec.Command("python3", "../../gadgets/nccl/memory.py", "--wait", "--libcuda", driver,
		"--libnccl", filepath.Join(simulated.Build(t, "simnccl"), "libnccl.so.2"))
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+filepath.Dir(driver), "SIMNCCL_MEMORY=vmm", "SIMCUDA_DEVICES=2", "SIMCUDA_JOURNAL="+dir)
	p := subject.Start(t, cmd)
	require.Contains(t, p.Line(), "made")

	v := start(t, large, nil, "top", fmt.Sprint(p.PID()))
	v.wait("attached", `attached to 1 process`)
	require.NotContains(t, v.text(), "NCCL of")
	require.Contains(t, p.Request("%s", ""), "ready")

	var lines []string
	for _, bytes := range largest(t, dir) {
		lines = append(lines, fmt.Sprintf(`NCCL of %d: %s for 0x[0-9a-f]+, rank \d of \d, made by NCCL\.__call__ \(nccl\.py:\d+\)\n`,
			p.PID(), regexp.QuoteMeta(bytes)))
	}
	v.wait("the three largest", strings.Join(lines, ""))
	v.press("q")
	v.waitEnd()
}

// largest has the bytes of the three communicators that hold most, by the driver's journal. The
// first communicator is older than the attach.
func largest(t *testing.T, dir string) (all []string) {
	journals, err := journal.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, journals, 1)
	held, made := map[uint64]int64{}, map[uint64]journal.Record{}
	for _, r := range journals[0].Records {
		switch {
		case r.Type == journal.Alloc && r.Tag>>63 != 0: // MEMORY_TAG of simnccl
			made[r.Seq] = r
			held[r.Tag&0xffffffff] += int64(r.Size)
		case r.Type == journal.Free && made[r.AllocSeq].Seq != 0:
			held[made[r.AllocSeq].Tag&0xffffffff] -= int64(r.Size)
		}
	}
	delete(held, 0) // ncclMemAlloc
	delete(held, 1)
	for _, bytes := range slices.Sorted(maps.Values(held)) {
		all = append([]string{profile.FormatBytes(bytes)}, all...)
	}
	require.Greater(t, len(all), 3)
	return all[:3]
}
