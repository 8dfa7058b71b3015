// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

func proc(id uint64, pid uint32) profile.Process {
	return profile.Process{ID: id, PID: pid, Comm: "python3", Namespace: "ml", Pod: "llm-0", Container: "server"}
}

// held is a row that holds alloc − freed.
func held(p profile.Process, kind string, device int32, alloc, freed int64) profile.Row {
	return profile.Row{Process: p, Kind: kind, Device: device, Values: profile.Values{
		AllocBytes: alloc, AllocObjects: 2, FreedBytes: freed, FreedObjects: 1,
		InuseBytes: alloc - freed, InuseObjects: 1, PeakBytes: alloc,
	}}
}

// over reports the processes with these ids as ended.
func over(ids ...uint64) func(profile.Process) bool {
	return func(p profile.Process) bool {
		for _, id := range ids {
			if p.ID == id {
				return true
			}
		}
		return false
	}
}

func ids(s Snapshot) (all []uint64) {
	for _, sample := range s.Samples {
		all = append(all, sample.Process.ID)
	}
	return all
}

func TestRowsOfAllStacksAddUp(t *testing.T) {
	store := &Store{}
	run, reader := store.NewRun("cuda_alloc"), store.NewReader()
	p := proc(1, 10)
	run.Rows([]profile.Row{held(p, "device", 0, 100, 40), held(p, "device", 0, 7, 0), held(p, "pool", 0, 5, 5), held(p, "device", 1, 3, 0)}, over())
	got := reader.Read()
	require.Len(t, got.Samples, 3)
	require.Equal(t, Series{Process: p, Kind: "device", Vendor: "NVIDIA"}, got.Samples[0].Series)
	require.Equal(t, profile.Values{AllocBytes: 107, AllocObjects: 4, FreedBytes: 40, FreedObjects: 2,
		InuseBytes: 67, InuseObjects: 2, PeakBytes: 100}, got.Samples[0].Values, "the peak is the larger of what was seen and the largest row's")
	require.Equal(t, []GadgetState{{"cuda_alloc", 4, -1, ""}}, got.Gadgets)
}

func TestEndedProcessIsReadOnceByEachReader(t *testing.T) {
	store := &Store{}
	run, a, b := store.NewRun("g"), store.NewReader(), store.NewReader()
	rows := []profile.Row{held(proc(1, 10), "device", 0, 100, 40), held(proc(2, 20), "device", 0, 8, 0)}
	run.Rows(rows, over())
	require.Equal(t, []uint64{1, 2}, ids(a.Read()))
	run.Rows(rows, over(1)) // the kernel keeps the rows for long
	last := a.Read()
	require.Equal(t, []uint64{1, 2}, ids(last))
	require.Equal(t, int64(60), last.Samples[0].ImplicitBytes)
	require.Zero(t, last.Samples[0].InuseBytes)
	require.NoError(t, last.Samples[0].Check())
	require.Equal(t, []uint64{2}, ids(a.Read()), "once")
	run.Rows(rows, over(1))
	require.Equal(t, []uint64{1, 2}, ids(b.Read()), "the other reader has not seen the end")
	require.Equal(t, []uint64{2}, ids(b.Read()))
	run.Rows(rows, over(1))
	require.Equal(t, []uint64{2}, ids(a.Read()), "its rows do not bring it back")
	run.Rows(rows[1:], over())
	require.Empty(t, run.done, "what the kernel has forgotten need not be remembered")
}

func TestProcessWhoseRowsAreGoneHasEnded(t *testing.T) {
	store := &Store{}
	run, reader := store.NewRun("g"), store.NewReader()
	run.Rows([]profile.Row{held(proc(1, 10), "device", 0, 100, 0)}, over())
	run.Rows(nil, over())
	got := reader.Read()
	require.Len(t, got.Samples, 1)
	require.True(t, got.Samples[0].Ended)
	require.Empty(t, reader.Read().Samples)

	rows := []profile.Row{held(proc(1, 10), "device", 0, 120, 0)}
	run.Rows(rows, over())
	require.Equal(t, int64(120), reader.Read().Samples[0].InuseBytes, "a filter had hidden it")
}

func TestFilterThatHidesARowForAMomentEndsNothing(t *testing.T) {
	store := &Store{}
	run, a := store.NewRun("g"), store.NewReader()
	store.NewReader() // never reads
	rows := []profile.Row{held(proc(1, 10), "device", 0, 100, 0)}
	run.Rows(rows, over())
	run.Rows(nil, over())
	a.Read()
	run.Rows(rows, over())
	require.Equal(t, int64(100), a.Read().Samples[0].InuseBytes)
	require.Equal(t, int64(100), a.Read().Samples[0].InuseBytes)
}

func TestFailureOfAProcessWithoutRowsIsKept(t *testing.T) {
	store := &Store{}
	run, reader := store.NewRun("g"), store.NewReader()
	run.Failed(Series{Process: proc(1, 10), Kind: "device"}, 1<<30)
	run.Rows(nil, over())
	got := reader.Read().Samples
	require.Len(t, got, 1)
	require.Equal(t, Sums{Failed: 1, FailedBytes: 1 << 30}, got[0].Sums)
	run.Rows(nil, over(1))
	reader.Read()
	require.Empty(t, reader.Read().Samples)
}

// A process may request any number of bytes.
func TestRefusedBytesNeverFall(t *testing.T) {
	store := &Store{}
	run := store.NewRun("g")
	p := serve(t, settings{listen: "127.0.0.1:0"}, &content{store: store})
	for _, id := range []uint64{1, 1, 1, 2} { // two processes whose labels are the same
		run.Failed(Series{Process: proc(id, 10), Kind: "device"}, 1<<62)
	}
	run.Failed(Series{Process: proc(1, 10), Kind: "device"}, -1)
	run.Failed(Series{Process: proc(3, 11), Kind: "device"}, math.MaxInt64)
	require.Equal(t, int64(maxCounter), store.NewReader().Read().Samples[0].FailedBytes)
	series := having(scrape(t, p.addr), "gpu_memory_failed_bytes_total")
	require.Len(t, series, 2)
	for _, bytes := range series {
		require.Equal(t, float64(maxCounter), bytes)
	}
}

func TestProcessSeenByTwoGadgetsCountsOnce(t *testing.T) {
	store := &Store{}
	first, second, reader := store.NewRun("g"), store.NewRun("g"), store.NewReader()
	first.Rows([]profile.Row{held(proc(1, 10), "device", 0, 100, 0)}, over())
	second.Rows([]profile.Row{held(proc(1, 10), "device", 0, 30, 0), held(proc(2, 20), "device", 0, 5, 0)}, over())
	got := reader.Read()
	require.Equal(t, []uint64{1, 2}, ids(got))
	require.Equal(t, int64(100), got.Samples[0].AllocBytes, "the one that started first has seen more")
	first.Drop("rows_full", 2, 10)
	second.Drop("rows_full", 1, 1)
	require.Equal(t, []Drop{{"g", "rows_full", 3, 11, ""}}, reader.Read().Drops)
	first.Close()
	require.Equal(t, int64(30), reader.Read().Samples[0].AllocBytes)
}

func TestDropsOfAGadgetThatEndsStay(t *testing.T) {
	store := &Store{}
	first, second, reader := store.NewRun("g"), store.NewRun("g"), store.NewReader()
	first.Drop("rows_full", 2, 10)
	second.Drop("rows_full", 1, 1)
	all := []Drop{{"g", "rows_full", 3, 11, ""}}
	require.Equal(t, all, reader.Read().Drops)
	for _, run := range []*Run{first, first, second} {
		run.Close()
		require.Equal(t, all, reader.Read().Drops, "a counter does not fall")
	}
	third := store.NewRun("g")
	third.Drop("rows_full", 4, 0)
	require.EqualValues(t, 7, reader.Read().Drops[0].Count)

	remote := store.NewRunOn("a", "g")
	remote.Drop("rows_full", 7, 70)
	remote.Close()
	require.Len(t, reader.Read().Drops, 1, "the gadget counts on, and its node may be reached again")
}

func TestUnreadEndedProcessesAreBounded(t *testing.T) {
	store := &Store{}
	run, reader := store.NewRun("g"), store.NewReader()
	for id := uint64(1); id <= maxEnded+10; id++ {
		run.Rows([]profile.Row{held(proc(id, uint32(id)), "device", 0, 1, 0)}, over(id))
	}
	got := reader.Read()
	require.Len(t, got.Samples, maxEnded)
	require.Equal(t, int64(10), got.Forgotten)
	require.Empty(t, reader.Read().Samples)
}

func TestAttachedCountsProcessesNotFiles(t *testing.T) {
	store := &Store{}
	run, reader := store.NewRun("g"), store.NewReader()
	run.Probes()
	require.Equal(t, []GadgetState{{"g", 0, 0, ""}}, reader.Read().Gadgets)
	run.Attached(10, "/a", true)
	run.Attached(10, "/b", true)
	run.Attached(11, "/a", true)
	require.Equal(t, 2, reader.Read().Gadgets[0].Attached)
	run.Attached(10, "/a", false)
	run.Attached(11, "/a", false)
	require.Equal(t, 1, reader.Read().Gadgets[0].Attached)
}

// For any rows: the samples add up to the rows, in-use adds up, nothing falls.
func TestSamplesAddUpToTheRows(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	store := &Store{}
	run, reader := store.NewRun("g"), store.NewReader()
	rows := make([]profile.Row, 60)
	kinds := []string{"device", "managed", "host", "pool"}
	for n := range rows {
		rows[n] = profile.Row{Process: proc(uint64(n%7), uint32(n%7)), Kind: kinds[random.IntN(4)], Device: int32(random.IntN(3)) - 1}
	}
	for range 50 {
		var want profile.Values
		for n := range rows {
			v := &rows[n].Values
			alloc, freed := random.Int64N(1000), int64(0)
			v.AllocBytes += alloc
			v.AllocObjects++
			if v.InuseObjects > 0 {
				freed = random.Int64N(v.InuseBytes + 1)
				v.FreedBytes += freed
				v.FreedObjects++
			}
			v.InuseBytes, v.InuseObjects = v.AllocBytes-v.FreedBytes, v.AllocObjects-v.FreedObjects
			v.PeakBytes = max(v.PeakBytes, v.InuseBytes)
			want = want.Add(*v)
		}
		run.Rows(rows, over())
		var got profile.Values
		for _, s := range reader.Read().Samples {
			require.NoError(t, s.Check())
			got = got.Add(s.Values)
		}
		want.PeakBytes, got.PeakBytes = 0, 0
		require.Equal(t, want, got)
	}
}

// TestSharedReadersKeepLastValues: of several scrapers that share a reader, the first one does not
// hide the last values from the others.
func TestSharedReadersKeepLastValues(t *testing.T) {
	store := &Store{}
	run, shared, own := store.NewRun("cuda_alloc"), store.newReader(50*time.Millisecond), store.NewReader()
	run.Rows([]profile.Row{held(proc(1, 10), "device", 0, 100, 40)}, over())
	run.Rows(nil, over())
	require.Len(t, own.Read().Samples, 1)
	require.Empty(t, own.Read().Samples)
	require.Len(t, shared.Read().Samples, 1)
	require.Len(t, shared.Read().Samples, 1, "the next scraper sees it, too")
	require.Eventually(t, func() bool { return len(shared.Read().Samples) == 0 }, 30*time.Second, 10*time.Millisecond)
	require.Empty(t, run.processes)
}

// Maps have no order, and what takes the first or the last sample of a process must get the same one at each reading.
func TestSamplesOfOneProcessAreSortedByTheirLabels(t *testing.T) {
	store := &Store{}
	run := store.NewRun("cuda_alloc")
	var want []string
	var rows []profile.Row
	for n := range 9 {
		want = append(want, fmt.Sprint("request=/", n))
		rows = append(rows, held(profile.Process{ID: 1, PID: 7, Labels: want[n]}, "device", 0, 100, 40))
	}
	run.Rows(rows, over())
	var got []string
	for _, s := range store.Current() {
		got = append(got, s.Process.Labels)
	}
	require.Equal(t, want, got)
}
