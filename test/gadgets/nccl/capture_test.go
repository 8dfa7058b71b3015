// SPDX-License-Identifier: Apache-2.0

package nccl

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/operators/decode/nccl"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject"
)

const captureScript = `
import ctypes, sys
from ctypes import byref, c_int, c_void_p
sys.path.insert(0, "../../../examples/collectives")
from nccl import CUDA, NCCL
cuda, nccl = CUDA(sys.argv[1]), NCCL(sys.argv[2])
origin, joins = cuda.stream(), cuda.stream()
buffer, event, graph = cuda.alloc(1 << 20), cuda.event(), c_void_p()
comm = nccl.init(1, nccl.unique_id(), 0)
print("ready", flush=True)
sys.stdin.readline()
for stream in origin, joins:
    nccl.all_reduce(buffer, buffer, 1, comm, stream)
cuda("cuStreamBeginCapture_v2", origin, c_int(0))
nccl.all_reduce(buffer, buffer, 2, comm, origin)
cuda.record(event, origin)
cuda.wait_event(joins, event)
nccl.all_reduce(buffer, buffer, 3, comm, joins)
cuda.record(event, joins)
cuda.wait_event(origin, event)
cuda("cuStreamEndCapture", origin, byref(graph))
for stream in origin, joins:
    nccl.all_reduce(buffer, buffer, 4, comm, stream)
    cuda.synchronize(stream)
print("done", flush=True)
sys.stdin.readline()
`

// TestCapturedOperationsAreMarked: on the stream whose capture was begun, and on one that has joined by an event, until its end.
// That a wait covers them does not make them executed: no time counts for them.
func TestCapturedOperationsAreMarked(t *testing.T) {
	for _, o := range []options{{}, {linux510: true}} {
		t.Run(fmt.Sprintf("linux510: %t", o.linux510), func(t *testing.T) {
			l := libraries(t)
			tr := start(t, l, o)
			cmd := exec.Command("python3", "-c", captureScript, l["libcuda"], l["libnccl"])
			cmd.Env = append(os.Environ(), "SIMCUDA_INIT_MS=0", "SIMNCCL_DIR="+t.TempDir())
			p := subject.Start(t, cmd)
			require.Equal(t, "ready", p.Line())
			require.Equal(t, "done", p.Request(""))
			all := tr.communicators()
			require.Len(t, all, 1)
			captured := map[uint64][]bool{}
			for _, op := range all[0].Operations {
				captured[op.Count] = append(captured[op.Count], op.Flags&nccl.Captured != 0)
				require.NotZero(t, op.Flags&nccl.Done)
			}
			require.Equal(t, map[uint64][]bool{1: {false, false}, 2: {true}, 3: {true}, 4: {false, false}}, captured)
			calls, timed := uint64(0), uint64(0)
			for _, s := range tr.operations() {
				if s.Op == "AllReduce" {
					calls, timed = calls+s.Calls, timed+s.Timed
				}
			}
			require.Equal(t, []uint64{6, 4}, []uint64{calls, timed})
			require.Empty(t, tr.drops())
		})
	}
}
