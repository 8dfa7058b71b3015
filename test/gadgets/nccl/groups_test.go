// SPDX-License-Identifier: Apache-2.0

package nccl

import (
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/operators/decode/nccl"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject"
)

// groups runs a function of groups.py, with that many ranks, until it prints the line.
func groups(t *testing.T, what string, ranks int, line string) *subject.Process {
	t.Helper()
	l := libraries(t)
	cmd := exec.Command("python3", "groups.py", "--libcuda", l["libcuda"], "--libnccl", l["libnccl"],
		"--ranks", strconv.Itoa(ranks), what)
	cmd.Env = append(os.Environ(), "SIMCUDA_INIT_MS=0", "SIMNCCL_DIR="+t.TempDir())
	p := subject.Start(t, cmd)
	require.Equal(t, line, p.Line())
	return p
}

// count the events by what and op.
func count(events []nccl.Event) map[string]int {
	all := map[string]int{}
	for _, e := range events {
		all[e.What+" "+e.Op]++
	}
	return all
}

// TestSimulatedGroupIsNotIssued: ncclGroupSimulateEnd ends the group, whose operations do not count, even if
// they are more than the ring has.
func TestSimulatedGroupIsNotIssued(t *testing.T) {
	for name, o := range map[string]options{"": {}, "5.10": {linux510: true}} {
		for _, ranks := range []int{2, 12} {
			t.Run(strconv.Itoa(ranks)+name, func(t *testing.T) {
				tr := start(t, libraries(t), o)
				groups(t, "simulated", ranks, "issued")
				rows := tr.communicators()
				require.Len(t, rows, ranks)
				for _, c := range rows {
					require.EqualValues(t, 3, c.Collectives)
					require.EqualValues(t, 2*2*ranks+3, c.Seq)
					require.Equal(t, c.Seq, c.DoneSeq)
					require.EqualValues(t, 3, c.DoneCollectives)
					require.EqualValues(t, 3, c.Newest.OpSeq)
					require.Zero(t, c.Newest.Group)
					require.False(t, c.InGroup)
					require.Zero(t, c.Failed)
					require.Zero(t, c.Error)
				}
				require.Len(t, tr.peers(), 2*ranks*ranks)
				for _, p := range tr.peers() {
					require.EqualValues(t, 2, p.Issued, "%+v", p)
				}
				for _, s := range tr.operations() {
					if s.Op == "GroupEnd" {
						require.EqualValues(t, 2, s.Calls)
					}
				}
				if ranks == 2 {
					require.Equal(t, map[string]int{"issued AllReduce": 3 * 2, "issued Send": 2 * 4, "issued Recv": 2 * 4,
						"done AllReduce": 3 * 2, "done Send": 2 * 4, "done Recv": 2 * 4}, count(tr.settled()))
				}
				require.Empty(t, tr.drops())
			})
		}
	}
}

// TestFailedGroupIsNotIssued: NCCL cancels a group in which it has refused a call. Its operations do not count,
// those that were refused and those that were not.
func TestFailedGroupIsNotIssued(t *testing.T) {
	for _, ranks := range []int{2, 12} {
		t.Run(strconv.Itoa(ranks), func(t *testing.T) {
			tr := start(t, libraries(t), options{})
			groups(t, "failed", ranks, "issued")
			rows := tr.communicators()
			require.Len(t, rows, ranks)
			for _, c := range rows {
				require.EqualValues(t, 2, c.Collectives)
				require.EqualValues(t, 2, c.Seq)
				require.EqualValues(t, 2, c.DoneCollectives)
				require.EqualValues(t, []uint64{2, 2}, []uint64{c.Newest.Match, c.Newest.OpSeq})
				require.EqualValues(t, 3, c.Failed, "two calls and the group")
				require.EqualValues(t, 4, c.Error, "ncclInvalidArgument")
			}
			require.NotEmpty(t, tr.peers())
			for _, p := range tr.peers() {
				require.Zero(t, p.Issued, "%+v", p)
			}
			if ranks == 2 {
				require.Equal(t, map[string]int{"issued AllReduce": 2 * 2, "done AllReduce": 2 * 2,
					"failed AllReduce": 3 * 2, "failed Send": 3 * 2, "failed Recv": 2 * 2}, count(tr.settled()))
			}
			require.Empty(t, tr.drops())
		})
	}
}

// TestSimulatedGroupInsideAnother: only the outermost end counts, whichever it is.
func TestSimulatedGroupInsideAnother(t *testing.T) {
	tr := start(t, libraries(t), options{})
	groups(t, "nested", 2, "issued")
	for _, c := range tr.communicators() {
		require.EqualValues(t, 1, c.Seq)
		require.EqualValues(t, 1, c.DoneCollectives)
	}
	require.Equal(t, map[string]int{"issued AllReduce": 2, "done AllReduce": 2}, count(tr.settled()))
}

// TestContextThatIsKnownLater: a wait for a context covers streams that were used before an attached program knew
// which one is current, and no longer those of which it is known that they have another one.
func TestContextThatIsKnownLater(t *testing.T) {
	p := groups(t, "contexts", 2, "made")
	tr := start(t, libraries(t), options{})
	done := func(issued, done uint64) {
		t.Helper()
		rows := tr.communicators()
		require.Len(t, rows, 2)
		for _, c := range rows {
			require.True(t, c.Late)
			require.Equal(t, []uint64{issued, done}, []uint64{c.Seq, c.DoneSeq})
		}
	}
	require.Equal(t, "waited for a context that is known by now", p.Request(""))
	done(1, 1)
	require.Equal(t, "waited for another context", p.Request(""))
	done(2, 1)
	require.Equal(t, "issued", p.Request(""))
	done(2, 2)
}

// TestGroupsLargerThanTheRing: every operation has its event, and is known to be done, also while the program is ahead
// of what it waits for.
func TestGroupsLargerThanTheRing(t *testing.T) {
	const ranks = 12
	tr := start(t, libraries(t), options{})
	p := groups(t, "ahead", ranks, "none is waited for")
	completed := func(issued, least, most uint64) {
		t.Helper()
		rows := tr.peers()
		require.Len(t, rows, 2*ranks*ranks)
		for _, p := range rows {
			require.Equal(t, issued, p.Issued)
			require.GreaterOrEqual(t, p.Completed, least, "%+v", p)
			require.LessOrEqual(t, p.Completed, most, "%+v", p)
		}
	}
	completed(3, 0, 0)
	require.Equal(t, "one is waited for", p.Request(""))
	completed(3, 1, 1)
	require.Equal(t, "ten are waited for", p.Request(""))
	completed(12, 5, 10)
	require.Equal(t, "issued", p.Request(""))
	completed(12, 12, 12)
	type operation struct{ handle, seq uint64 }
	events, seen := tr.settled(), map[operation]bool{}
	for _, e := range events {
		if e.What == "issued" {
			require.False(t, seen[operation{e.Handle, e.Seq}], "%+v", e)
			seen[operation{e.Handle, e.Seq}] = true
			require.GreaterOrEqual(t, e.ReturnNS, e.EnterNS)
		}
	}
	all := count(events)
	require.Equal(t, []int{12 * ranks * ranks, 12 * ranks * ranks}, []int{all["issued Send"], all["issued Recv"]})
	require.Empty(t, tr.drops())
}
