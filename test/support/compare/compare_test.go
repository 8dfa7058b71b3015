// SPDX-License-Identifier: Apache-2.0

package compare

import (
	"strings"
	"testing"

	"github.com/gpu-gadgets/gpu-gadgets/examples/simcuda/journal"
	"github.com/stretchr/testify/require"
)

const start = 77

// A journal of one process: tag 1 allocates 100 and 50 bytes and frees 100, tag 2
// allocates 7 that end with their context.
func example() ([]*journal.Journal, Truth) {
	j := &journal.Journal{Header: journal.Header{PID: 5, StartTicks: start}, Records: []journal.Record{
		{Seq: 1, Tag: 1, Size: 100, Kind: journal.Device, Type: journal.Alloc},
		{Seq: 2, Tag: 1, Size: 50, Kind: journal.Device, Type: journal.Alloc},
		{Seq: 3, Tag: 2, Size: 7, Kind: journal.Host, Type: journal.Alloc},
		{Seq: 4, Tag: 2, Size: 100, Kind: journal.Device, Type: journal.Free, AllocSeq: 1},
		{Seq: 5, Tag: 1, Size: 7, Kind: journal.Host, Type: journal.Implicit, AllocSeq: 3},
		{Seq: 6, Tag: 3, Size: 9, Kind: journal.Device, Type: journal.Call, Result: journal.OutOfMemory},
	}}
	truth := Truth{}
	err := truth.Read(strings.NewReader(`
{"pid": 5, "start": 77, "tag": 1, "frames": [["invoke", "/a.py", 3], ["Model.forward", "/a.py", 9]]}
{"pid": 5, "start": 77, "tag": 2, "frames": [["invoke", "/a.py", 3], ["größe", "/a.py", 12]]}
`))
	if err != nil {
		panic(err)
	}
	return []*journal.Journal{j}, truth
}

func TestExpectedAttributesFreesToTheAllocatingStack(t *testing.T) {
	rows, err := Expected(example2())
	require.NoError(t, err)
	require.Len(t, rows, 2)
	require.Equal(t, Counts{AllocBytes: 150, AllocObjects: 2, FreedBytes: 100, FreedObjects: 1,
		InUseBytes: 50, InUseObjects: 1}, rows[0].Counts)
	require.Equal(t, Frame{"Model.forward", "/a.py", 9}, rows[0].Stack[1])
	require.Equal(t, "host", rows[1].Kind)
	require.Equal(t, Counts{AllocBytes: 7, AllocObjects: 1, ImplicitBytes: 7, ImplicitObjects: 1}, rows[1].Counts)
}

func example2() ([]*journal.Journal, Truth, Options) {
	j, truth := example()
	return j, truth, Options{}
}

func TestExitFreesImplicitly(t *testing.T) {
	j, truth := example()
	rows, err := Expected(j, truth, Options{Exited: true})
	require.NoError(t, err)
	require.Equal(t, int64(50), rows[0].ImplicitBytes)
	require.Zero(t, Total(rows).InUseBytes)
}

func TestMaxFramesMergesCallers(t *testing.T) {
	j, truth := example()
	truth[Caller{5, start, 0, 2}] = append(truth[Caller{5, start, 0, 1}][:1:1], Frame{"other", "/b.py", 1})
	for i := range j[0].Records {
		j[0].Records[i].Kind = journal.Device
	}
	rows, err := Expected(j, truth, Options{MaxFrames: 1})
	require.NoError(t, err)
	require.Len(t, rows, 1)
	require.Equal(t, int64(157), rows[0].AllocBytes)
}

func TestUnknownTagIsAnError(t *testing.T) {
	j, truth := example()
	delete(truth, Caller{5, start, 0, 2})
	_, err := Expected(j, truth, Options{})
	require.ErrorContains(t, err, "tag 2 of pid 5")
}

func TestDiffFindsWrongMissingAndExtraRows(t *testing.T) {
	want, err := Expected(example2())
	require.NoError(t, err)
	require.Empty(t, Diff(want, want))

	wrong := append([]Row(nil), want...)
	wrong[0].InUseBytes -= 60
	wrong[0].FreedBytes += 60
	wrong[1].Kind = "device"
	zero := want[0]
	zero.PID, zero.Counts = 6, Counts{}
	diffs := Diff(want, append(wrong, zero))
	require.Len(t, diffs, 3)

	var b strings.Builder
	require.NoError(t, Print(&b, diffs, 0))
	for _, s := range []string{"3 rows differ", "(missing)", "(unexpected)", "-60", "-10", "größe /a.py:12"} {
		require.Contains(t, b.String(), s)
	}
	require.NotContains(t, b.String(), "alloc objects  2")
}

func TestDiffAddsUpRowsOfOneIdentity(t *testing.T) {
	want, err := Expected(example2())
	require.NoError(t, err)
	first, second := want[0], want[0]
	first.Counts = Counts{AllocBytes: 100, AllocObjects: 1, FreedBytes: 100, FreedObjects: 1}
	second.Counts = Counts{AllocBytes: 50, AllocObjects: 1, InUseBytes: 50, InUseObjects: 1}
	require.Empty(t, Diff(want, []Row{second, want[1], first}))
}

func TestExecEndsWhatTheFormerImageHeld(t *testing.T) {
	j, truth := example()
	second := &journal.Journal{Header: j[0].Header, Records: j[0].Records[1:2]}
	second.Image = 1
	truth[Caller{5, start, 1, 1}] = truth[Caller{5, start, 0, 1}]
	rows, err := Expected(append(j, second), truth, Options{})
	require.NoError(t, err)
	require.Equal(t, Counts{AllocBytes: 200, AllocObjects: 3, FreedBytes: 100, FreedObjects: 1,
		ImplicitBytes: 50, ImplicitObjects: 1, InUseBytes: 50, InUseObjects: 1}, rows[0].Counts)
}
