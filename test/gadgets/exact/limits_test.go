// SPDX-License-Identifier: Apache-2.0

package exact

import (
	"strconv"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/compare"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/simulated"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/tracer"
)

// limited runs the workload on a tracer with one map made small, and returns the
// truth, the rows that have a stack, and [unknown]'s.
func limited(t *testing.T, name string, entries uint32) (tr *tracer.Tracer, want, named, unknown []compare.Row) {
	lib := simulated.DriverCopy(t)
	dir := t.TempDir()
	tr = tracer.Start(t, lib, tracer.Options{Offset: 10, Edit: func(spec *ebpf.CollectionSpec) {
		allRefusals(spec)
		require.Contains(t, spec.Maps, name)
		require.Greater(t, spec.Maps[name].MaxEntries, entries)
		spec.Maps[name].MaxEntries = entries
	}})
	workload(t, lib, dir, func() {
		want = expected(t, dir, false)
		for _, r := range tr.Rows() {
			if r.StackID == 0 {
				unknown = append(unknown, got([]tracer.Row{r})...)
			} else {
				named = append(named, got([]tracer.Row{r})...)
			}
		}
	}, "--calls", strconv.Itoa(subject.Volume(8000, 20000)))
	require.NotEmpty(t, named)
	require.NotEmpty(t, unknown)
	return tr, want, named, unknown
}

// requireNoBytesLost checks that [unknown] has the bytes missing in the named rows, of
// each process, kind and device.
func requireNoBytesLost(t *testing.T, want, named, unknown []compare.Row) {
	t.Helper()
	all := append(append([]compare.Row(nil), named...), unknown...)
	requireEqual(t, "with [unknown]", withoutStacks(want), withoutStacks(all))
}

func only(t *testing.T, tr *tracer.Tracer, reason string) {
	t.Helper()
	drops := tr.Drops()
	require.Len(t, drops, 1, "%v", drops)
	require.NotZero(t, drops[reason], "%v", drops)
}

func TestStacksBeyondTheLimitAreUnknown(t *testing.T) {
	tr, want, named, unknown := limited(t, "stacks_by_id", 300)
	requireNoBytesLost(t, want, named, unknown)
	only(t, tr, "stacks_full")
	require.LessOrEqual(t, tr.Len("stacks_by_id"), 300)
}

func TestRowsBeyondTheLimitAreUnknown(t *testing.T) {
	tr, want, named, unknown := limited(t, "rows_by_stack", 300)
	requireNoBytesLost(t, want, named, unknown)
	only(t, tr, "rows_full")
	require.LessOrEqual(t, tr.Len("rows_by_stack"), 300)

	// A row that was made before the map was full has everything of its stack.
	exact := map[string]compare.Counts{}
	for _, r := range compare.Merge(want) {
		exact[key(r)] = r.Counts
	}
	for _, r := range compare.Merge(named) {
		w := exact[key(r)]
		require.LessOrEqual(t, r.AllocBytes, w.AllocBytes, "%v", r)
	}
}

// A pointer that was not stored cannot be recognised when it is freed: allocations stay
// exact, and [unknown] has the difference.
func TestPointersBeyondTheLimitAreUnknown(t *testing.T) {
	tr, want, named, unknown := limited(t, "live_by_pointer", 100)
	all := append(append([]compare.Row(nil), named...), unknown...)
	w, h := compare.Total(want), compare.Total(all)
	require.Equal(t, w.AllocBytes, h.AllocBytes)
	require.Equal(t, w.AllocObjects, h.AllocObjects)
	require.GreaterOrEqual(t, h.InUseBytes, w.InUseBytes)
	u := compare.Total(unknown)
	require.Equal(t, u.AllocBytes, u.InUseBytes, "nothing of it is seen freed")
	require.NotZero(t, tr.Drops()["live_full"])
	require.NotZero(t, tr.Drops()["freed_before_attach"])
	require.LessOrEqual(t, tr.Len("live_by_pointer"), 100)
	for _, r := range named {
		require.GreaterOrEqual(t, r.InUseBytes, int64(0), "%v", r)
		require.Equal(t, r.AllocBytes, r.FreedBytes+r.ImplicitBytes+r.InUseBytes, "%v", r)
	}
}

// The same for physical memory whose handle was not stored: that it is mapped, and released, is not seen. At its line
// it would be in use for as long as its process runs.
func TestHandlesBeyondTheLimitAreUnknown(t *testing.T) {
	tr, want, named, unknown := limited(t, "handles_by_number", 10)
	all := append(append([]compare.Row(nil), named...), unknown...)
	w, h := compare.Total(want), compare.Total(all)
	require.Equal(t, w.AllocBytes, h.AllocBytes)
	require.Equal(t, w.AllocObjects, h.AllocObjects)
	for _, r := range unknown {
		require.Equal(t, r.AllocBytes, r.InUseBytes, "nothing of it is seen freed")
	}
	exact := map[string]compare.Counts{}
	for _, r := range compare.Merge(want) {
		exact[key(r)] = r.Counts
	}
	for _, r := range compare.Merge(named) {
		require.LessOrEqual(t, r.InUseBytes, exact[key(r)].InUseBytes, "%v", r)
	}
	require.NotZero(t, tr.Drops()["live_full"])
	require.NotZero(t, tr.Drops()["freed_before_attach"])
	require.LessOrEqual(t, tr.Len("handles_by_number"), 10)
}

// Without room even for [unknown], the bytes are in the drops.
func TestNothingFitsIsCounted(t *testing.T) {
	lib := simulated.DriverCopy(t)
	dir := t.TempDir()
	tr := tracer.Start(t, lib, tracer.Options{Offset: 10, Edit: func(spec *ebpf.CollectionSpec) {
		spec.Maps["rows_by_stack"].MaxEntries = 1
		spec.Maps["unknown_rows"].MaxEntries = 1
	}})
	workload(t, lib, dir, func() {
		want := compare.Total(expected(t, dir, false))
		have := compare.Total(got(tr.Rows()))
		require.Less(t, have.AllocBytes, want.AllocBytes)
		require.Equal(t, want.AllocBytes, have.AllocBytes+int64(tr.DroppedBytes()))
	}, "--calls", strconv.Itoa(subject.Volume(4000, 8000)))
	require.NotZero(t, tr.Drops()["unknown_rows_full"])
}

func key(r compare.Row) string {
	k := r.Kind + string(r.Device) + string(rune(r.PID))
	for _, f := range r.Stack {
		k += f.Function + f.File + string(rune(f.Line))
	}
	return k
}
