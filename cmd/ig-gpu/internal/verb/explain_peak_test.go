// SPDX-License-Identifier: Apache-2.0

package verb

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

// The page's sum is of all that a process holds, a peak is of one device: what the one has and
// the other has not is said.
func TestExplainSaysWhatThePeakLeavesOut(t *testing.T) {
	const gib = 1 << 30
	row := func(pid uint32, kind string, device int32, bytes int64) *peakRow {
		return &peakRow{frame: "load (serve.py:7)", row: profile.Row{Process: profile.Process{ID: uint64(pid), PID: pid, Comm: "python3"}, Kind: kind, Device: device,
			Values: profile.Values{InuseBytes: bytes, AllocBytes: bytes, PeakBytes: bytes}}}
	}
	say := func(rows ...*peakRow) string {
		f := &facts{}
		f.peaks.rows = map[profile.RowID]*peakRow{}
		for n, r := range rows {
			f.peaks.rows[profile.RowID{StackID: uint64(n)}] = r
		}
		f.peaks.peaks.Read(time.Now(), func(yield func(*profile.PeakRow, *profile.Row) bool) {
			for _, r := range f.peaks.rows {
				if !yield(&r.peak, &r.row) {
					return
				}
			}
		})
		p := &page{}
		composePeak(p, f, "7")
		require.Len(t, p.all, 1)
		return p.all[0].Text
	}
	gpu := row(7, "device", 0, gib)
	require.Equal(t, "It held the most at the end of the watch: 1.00 GiB.", say(gpu))
	require.Equal(t, "It held the most at the end of the watch: 1.00 GiB.", say(gpu, row(7, "tensor", 0, gib/2)), "inside of it")
	require.Equal(t, "python3[7] on GPU 0 held the most at the end of the watch: 1.00 GiB. Not in this figure: 1.00 GiB of the host's pinned memory.",
		say(gpu, row(7, "host", 0, gib)))
	require.Equal(t, "python3[7] on GPU 0 held the most at the end of the watch: 1.00 GiB."+
		" Not in this figure: 512 MiB on an unknown GPU, 768 MiB on other GPUs or of other processes.",
		say(gpu, row(7, "device", profile.UnknownDevice, gib/2), row(7, "device", 1, gib/4), row(8, "device", 0, gib/2)))
}

// TestWhatStreamOrderedPoolsKeepIsNotOfContexts: memory that is freed into a pool with a high release threshold has no row.
func TestWhatStreamOrderedPoolsKeepIsNotOfContexts(t *testing.T) {
	explainedWith := func(freed int64, v vendor) string {
		f := newFacts([]uint32{7}, 10*time.Second)
		f.read, f.driver, f.vendor = 2, 62<<30, v
		process := profile.Process{ID: 1, PID: 7}
		f.peaks.rows = map[profile.RowID]*peakRow{
			{Process: 1, Kind: "pool"}: {row: profile.Row{Process: process, Kind: "pool", Values: profile.Values{InuseBytes: 2 << 30, PeakBytes: 2<<30 + freed}}},
			{Process: 1, Kind: profile.KindContext}: {frame: "init (x.py:1)", row: profile.Row{Process: process, Kind: profile.KindContext,
				Values: profile.Values{InuseObjects: 1}}},
		}
		return explained(t, f)
	}
	text := explainedWith(58<<30, nvidia)
	require.Contains(t, text, "the line that holds 60.0 GiB of it is unknown: that was allocated before the watch began, or is what the runtime itself needs, "+
		"or is kept by stream-ordered pools (cuMemAllocAsync): up to 58.0 GiB was freed into them; cuMemPoolTrimTo returns it.")
	require.Contains(t, text, "driver counts 60.0 GiB that no row explains. Of that, some may be kept by stream-ordered pools (cuMemAllocAsync): up to 58.0 GiB was freed")
	require.NotContains(t, text, "for each of them")

	f := watched(62<<30, refusedBy("2.00 GiB f (a.py:1)", 2<<30))
	f.peaks.rows = map[profile.RowID]*peakRow{{Process: 1, Kind: "pool"}: {row: profile.Row{Process: profile.Process{ID: 1, PID: 7}, Kind: "pool",
		Values: profile.Values{InuseBytes: 2 << 30, PeakBytes: 60 << 30}}}}
	require.NotContains(t, explained(t, f), fromBefore)
	require.Contains(t, explainedWith(58<<30, amd), "pools (hipMallocAsync): up to 58.0 GiB was freed into them; hipMemPoolTrimTo returns it.")
	text = explainedWith(1<<30, nvidia)
	require.Contains(t, text, "that no row explains, at most 60.0 GiB for each of them.")
	require.NotContains(t, text, "stream-ordered")
}
