// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/simulated"
)

// pool is a server that forks its workers before it has called the driver. A read of the
// parent's memory finds the interpreter: its pages are in memory. They are missing in the
// children's page tables, and nothing faults them in, because the functions that they
// call have been loaded before.
const pool = `
import ctypes, os, sys
cuda = ctypes.CDLL(sys.argv[1])
context, p = ctypes.c_void_p(), ctypes.c_uint64()
init, create, alloc = cuda.cuInit, cuda.cuCtxCreate_v2, cuda.cuMemAlloc_v2
def work(size):
    return init(0) or create(ctypes.byref(context), 0, 0) or alloc(ctypes.byref(p), size)
for i in range(8):
    if os.fork() == 0:
        os._exit(work(ctypes.c_size_t(4096 << i)))
codes = [os.waitpid(-1, 0)[1] for i in range(8)]
assert not any(codes), codes
`

// On a stock ig programs may not wait for pages.
func TestForkedWorkersHaveNamesWhereProgramsMayNotSleep(t *testing.T) {
	library := simulated.Driver(t)
	tr := Start(t, library, Options{Stock: true})
	cmd := exec.Command("python3", "-c", pool, library)
	cmd.Env = append(os.Environ(), "SIMCUDA_INIT_MS=0", "LD_BIND_NOW=1")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)

	rows := slices.DeleteFunc(tr.Rows(), func(r Row) bool { return r.Kind == KindContext })
	require.Len(t, rows, 8)
	for _, r := range rows {
		var text []string
		for _, f := range r.Python {
			text = append(text, fmt.Sprintf("%s:%d", f.Function, f.Line))
		}
		require.Equal(t, []string{"work:7", "<module>:10"}, text, "%v", tr.Drops())
	}
}
