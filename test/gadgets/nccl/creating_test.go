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

const creatingScript = `
import ctypes, sys
from ctypes import byref, c_int, c_void_p
nccl = ctypes.CDLL(sys.argv[1])
class Id(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_ubyte * 128)]
rank, id_, comm, child = int(sys.argv[2]), Id(), c_void_p(), c_void_p()
ctypes.memmove(byref(id_), bytes.fromhex(sys.argv[3]), 128)
nccl.ncclCommInitRank.argtypes = [c_void_p, c_int, Id, c_int]
nccl.ncclCommSplit.argtypes = [c_void_p, c_int, c_int, c_void_p, c_void_p]
print("ready", flush=True)
sys.stdin.readline()
assert nccl.ncclCommInitRank(byref(comm), 2, id_, 2) != 0  # there is no rank 2
assert nccl.ncclCommInitRank(byref(comm), 2, id_, rank) == 0
print("made", flush=True)
sys.stdin.readline()
# A split is one of all ranks, whatever their colour. Rank 1 has none.
assert nccl.ncclCommSplit(comm, -1 if rank else 0, 0, byref(child), None) == 0
print("split", flush=True)
sys.stdin.readline()
`

// TestARowStandsForACommunicatorThatIsCreated until the call has returned, which is when all ranks have made it.
func TestARowStandsForACommunicatorThatIsCreated(t *testing.T) {
	for _, o := range []options{{}, {linux510: true}} {
		t.Run(fmt.Sprintf("linux510: %t", o.linux510), func(t *testing.T) {
			library := libraries(t)["libnccl"]
			tr, dir := start(t, map[string]string{"libnccl": library}, o), t.TempDir()
			id := fmt.Sprintf("%0256x", os.Getpid())
			var ranks []*subject.Process
			for rank := range 2 {
				cmd := exec.Command("python3", "-c", creatingScript, library, fmt.Sprint(rank), id)
				cmd.Env = append(os.Environ(), "SIMNCCL_DIR="+dir)
				p := subject.Start(t, cmd)
				require.Equal(t, "ready", p.Line())
				ranks = append(ranks, p)
			}
			// waits is the one row with that state; not of the call that fails, which may just be inside.
			waits := func(state string, rows int) (found nccl.Communicator) {
				t.Helper()
				tr.eventually("a row is "+state, func(map[int]nccl.Communicator) bool {
					all := tr.communicators()
					for _, c := range all {
						if c.State == state && c.Rank < c.Size {
							found = c
						}
					}
					return len(all) == rows && found.State == state
				})
				return found
			}
			ranks[1].Say("")
			call := waits("creating", 1)
			require.Equal(t, []int32{1, 2}, []int32{call.Rank, call.Size})
			require.EqualValues(t, ranks[1].PID(), uint32(call.Handle), "its thread")
			ranks[0].Say("")
			ranks[0].Expect("made")
			ranks[1].Expect("made")
			require.Equal(t, call.Identity, waits("active", 2).Identity)

			ranks[0].Say("")
			split := waits("creating", 3)
			require.Equal(t, []int32{0, 2}, []int32{split.Rank, split.Size}, "of the parent")
			require.Equal(t, call.Identity, split.Parent)
			ranks[1].Say("")
			ranks[0].Expect("split")
			ranks[1].Expect("split")
			all := tr.communicators()
			require.Len(t, all, 3)
			for _, c := range all {
				require.Equal(t, "active", c.State)
				require.NotEqual(t, split.Identity, c.Identity)
			}
			require.Empty(t, tr.drops())
		})
	}
}
