// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/simulated"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject"
)

// twoContexts has contexts of two devices when it is attached to. On request it queries
// its device several times, and allocates.
const twoContexts = `
import ctypes, sys
cuda = ctypes.CDLL(sys.argv[1])
device, pointer, size = ctypes.c_int(), ctypes.c_uint64(), ctypes.c_size_t(4096)
contexts = [ctypes.c_uint64(), ctypes.c_uint64()]
assert cuda.cuInit(0) == 0
for n, c in enumerate(contexts):
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(c), n) == 0
assert cuda.cuCtxSetCurrent(contexts[1]) == 0
print("ready", flush=True)
for line in sys.stdin:
    what, n = line.split()
    if what == "ask":
        for _ in range(int(n)):
            assert cuda.cuCtxGetDevice(ctypes.byref(device)) == 0
    elif what == "use":
        assert cuda.cuCtxSetCurrent(contexts[int(n)]) == 0
    else:
        for _ in range(int(n)):
            assert cuda.cuMemAlloc_v2(ctypes.byref(pointer), size) == 0
    print(line.strip(), flush=True)
`

// A process whose contexts are older than the probes: each device is known from the first
// query on, even if so many queries had no new result that the function is no longer
// probed.
func TestDevicesOfOldContextsAreLearnedAndQueriedAgain(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("python3", "-c", twoContexts, simulated.DriverCopy(t))
	cmd.Env = append(os.Environ(), "SIMCUDA_DEVICES=2")
	w := subject.Start(t, cmd)
	w.Expect("ready")
	// No scan: the programs alone report which facts are missing.
	r := start(t, "--pid", fmt.Sprint(w.PID()), "--scan-interval", "1h")
	r.waitAttached(w.PID())
	do := func(line string) {
		t.Helper()
		require.Equal(t, line, w.Request("%s", line))
	}
	do("ask 1")
	do("alloc 1")
	do("ask 6000") // more than are of use
	time.Sleep(time.Second)
	do("use 0") // never seen to be current
	do("alloc 10")
	queried := time.Now()
	r.wait("the probes are attached again", func() bool { return time.Since(queried) > time.Second })
	do("ask 1")
	do("alloc 100")

	byDevice := map[int32]uint64{}
	r.waitRows("all allocations", w.PID(), func(rows []row) bool {
		clear(byDevice)
		sum := uint64(0)
		for _, row := range rows {
			byDevice[row.Device] += row.AllocObjects
			sum += row.AllocObjects
		}
		return sum == 111
	})
	require.Equal(t, map[int32]uint64{1: 1, -1: 10, 0: 100}, byDevice)
	require.Empty(t, r.lost())
	code, _ := r.interrupt()
	require.Zero(t, code)
}
