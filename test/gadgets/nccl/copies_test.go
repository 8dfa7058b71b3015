// SPDX-License-Identifier: Apache-2.0

package nccl

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/operators/decode/nccl"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject"
)

const copiesScript = `
import ctypes, os, signal, sys
from ctypes import byref, c_size_t, c_void_p
sys.path.insert(0, "../../../examples/collectives")
from nccl import CUDA, NCCL
def at(what):
    print(what, flush=True)
    sys.stdin.readline()
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
nccl = NCCL(sys.argv[2])
ids = nccl.unique_id()
rank = 0 if os.fork() else 1
cuda = CUDA(sys.argv[1])
comm, buffer, stream, pinned, size = nccl.init(2, ids, rank), cuda.alloc(8), cuda.stream(), c_void_p(), c_size_t(8)
if rank:
    for _ in range(2):
        signal.sigwait([signal.SIGUSR1])
        nccl.send(buffer, 1, 0, comm, stream)
        cuda.synchronize(stream)
    os._exit(0)
cuda("cuMemAllocHost_v2", byref(pinned), size)
pageable = ctypes.create_string_buffer(8)
at("ready")
nccl.recv(buffer, 1, 1, comm, stream)
for _ in range(3):
    cuda("cuMemcpyDtoHAsync_v2", pinned, buffer, size, stream)
    cuda("cuMemcpyDtoHAsync_v2", pageable, buffer, c_size_t(0), stream)
at("pinned")
cuda("cuMemcpyDtoHAsync_v2", pageable, buffer, size, stream)
at("copied")
cuda.synchronize(stream)
nccl.recv(buffer, 1, 1, comm, c_void_p(0))
cuda("cuMemcpyDtoH_v2", pageable, buffer, c_size_t(0))
at("issued")
cuda("cuMemcpyDtoH_v2", pageable, buffer, size)
at("copied again")
`

// TestACopyToTheHostIsAWait: a program without a watchdog, as CuPy's, waits there first. An asynchronous one
// says nothing once it has returned, as it does at once with pinned memory.
func TestACopyToTheHostIsAWait(t *testing.T) {
	for _, o := range []options{{}, {linux510: true}} {
		t.Run(fmt.Sprintf("linux510: %t", o.linux510), func(t *testing.T) {
			l := libraries(t)
			tr := start(t, l, o)
			cmd := exec.Command("python3", "-c", copiesScript, l["libcuda"], l["libnccl"])
			cmd.Env = append(os.Environ(), "SIMCUDA_INIT_MS=0", "SIMNCCL_DIR="+t.TempDir())
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			p := subject.Start(t, cmd)
			require.Equal(t, "ready", p.Line())
			var sender int
			tr.eventually("two ranks", func(all map[int]nccl.Communicator) bool {
				for pid, c := range all {
					if c.Rank == 1 {
						sender = pid
					}
				}
				return len(all) == 2
			})
			require.NotZero(t, sender)
			receiver := func() nccl.Communicator {
				return tr.eventually("", func(all map[int]nccl.Communicator) bool { return true })[p.PID()]
			}
			waits := func(all map[int]nccl.Communicator) bool { return all[p.PID()].PendingNS == all[p.PID()].NowNS }

			require.Equal(t, "pinned", p.Request(""))
			c := receiver()
			require.EqualValues(t, []uint64{1, 0, 0}, []uint64{c.Seq, c.DoneSeq, c.PendingNS})
			p.Say("")
			c = tr.eventually("an asynchronous copy waits", waits)[p.PID()]
			require.Greater(t, c.PendingCoveredNS, c.Newest.ReturnNS)
			require.NoError(t, syscall.Kill(sender, syscall.SIGUSR1))
			p.Expect("copied")
			c = receiver()
			require.EqualValues(t, []uint64{1, 0, 0}, []uint64{c.Seq, c.DoneSeq, c.PendingNS})

			require.Equal(t, "issued", p.Request(""))
			c = receiver()
			require.EqualValues(t, []uint64{2, 1, 0}, []uint64{c.Seq, c.DoneSeq, c.PendingNS}, "a copy of nothing does not wait")
			p.Say("")
			tr.eventually("a copy waits", waits)
			require.NoError(t, syscall.Kill(sender, syscall.SIGUSR1))
			p.Expect("copied again")
			require.EqualValues(t, 2, receiver().DoneSeq)
			p.Say("")
			p.Wait()
			require.Empty(t, tr.drops())
		})
	}
}
