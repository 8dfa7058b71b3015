// SPDX-License-Identifier: Apache-2.0

package launches

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/simulated"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/tracer"
)

// TestEachThreadCapturesItsOwnStream: the per-thread default stream has one number for all threads. What
// other threads launch there is not part of a capture, and does not end it.
func TestEachThreadCapturesItsOwnStream(t *testing.T) {
	lib := simulated.DriverCopy(t)
	g := start(t, lib, tracer.Options{Offset: 10}, nil)
	python(t, `
from concurrent.futures import ThreadPoolExecutor
own, graph, executable = c_uint64(2), c_uint64(), c_uint64()
def call(name, *arguments):
    assert getattr(cuda, name)(*arguments) == 0, name
def launch_own(f):
    one = c_uint(1)
    call("cuLaunchKernel", f, one, one, one, one, one, one, c_uint(0), own, None, None)
def thread():
    pool = ThreadPoolExecutor(1)
    def on_thread(function, *arguments):
        return pool.submit(function, *arguments).result()
    on_thread(call, "cuCtxSetCurrent", context)
    return on_thread
first, second = thread(), thread()
a, b = get(b"captured"), get(b"launched")
first(call, "cuStreamBeginCapture_v2", own, c_uint(0))
first(launch_own, a)
second(launch_own, b)
second(call, "cuStreamBeginCapture_v2", own, c_uint(0))
second(launch_own, a)
second(call, "cuStreamEndCapture", own, byref(graph))
second(launch_own, b)
launch_own(b)
first(launch_own, a)
first(call, "cuStreamEndCapture", own, byref(graph))
first(launch_own, b)
call("cuGraphInstantiateWithFlags", byref(executable), graph, c_uint64(0))
call("cuGraphLaunch", executable, own)
`, lib)
	counted := map[string]uint64{}
	for _, row := range g.rows() {
		if name, _, ok := g.name(row.Function); ok {
			counted[name+" "+text(row.Operation[:])] += row.Calls
			require.EqualValues(t, 2, row.Stream)
		}
		if text(row.Operation[:]) == "graph" {
			require.EqualValues(t, 2, row.Nodes)
		}
	}
	require.Equal(t, map[string]uint64{"captured captured": 3, "launched launch": 4}, counted)
	require.Empty(t, g.Drops())
}
