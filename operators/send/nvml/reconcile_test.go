// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
)

const mib = 1 << 20

func TestReconcile(t *testing.T) {
	for _, c := range []struct {
		name string
		in   Account
		want Parts
	}{
		{"nothing is known of a process that was there before",
			Account{Used: 900 * mib, Floor: 900 * mib},
			Parts{BeforeAttach: 900 * mib}},
		{"the context is separate once its size is known",
			Account{Used: 900 * mib, Floor: 900 * mib, Context: 400 * mib},
			Parts{Context: 400 * mib, BeforeAttach: 500 * mib}},
		{"what stacks explain is not before attach",
			Account{Used: 1000 * mib, Explained: 100 * mib, Floor: 900 * mib, Context: 400 * mib},
			Parts{Stacks: 100 * mib, Context: 400 * mib, BeforeAttach: 500 * mib}},
		{"a process that was watched from its start has only a context",
			Account{Used: 500 * mib, Explained: 100 * mib, Born: true, Floor: 400 * mib},
			Parts{Stacks: 100 * mib, Context: 400 * mib}},
		{"growth that no row explains is the rest",
			Account{Used: 700 * mib, Explained: 100 * mib, Born: true, Floor: 400 * mib, Context: 390 * mib},
			Parts{Stacks: 100 * mib, Context: 400 * mib, Unexplained: 200 * mib}},
		{"the same of one that was there before",
			Account{Used: 700 * mib, Explained: 100 * mib, Floor: 450 * mib, Context: 400 * mib},
			Parts{Stacks: 100 * mib, Context: 400 * mib, BeforeAttach: 50 * mib, Unexplained: 150 * mib}},
		{"managed memory that is on the device is explained",
			Account{Used: 700 * mib, Explained: 100 * mib, Managed: 500 * mib, Born: true, Floor: 400 * mib},
			Parts{Stacks: 300 * mib, Context: 400 * mib}},
		{"managed memory that is not",
			Account{Used: 500 * mib, Explained: 100 * mib, Managed: 500 * mib, Born: true, Floor: 400 * mib},
			Parts{Stacks: 100 * mib, Context: 400 * mib}},
		{"more rows than the driver counts is a negative rest",
			Account{Used: 100 * mib, Explained: 150 * mib, Born: true},
			Parts{Stacks: 150 * mib, Unexplained: -50 * mib}},
		{"nothing at all", Account{}, Parts{}},
	} {
		require.Equal(t, c.want, Reconcile(c.in), c.name)
	}
}

func (p Parts) sum() int64 { return p.Stacks + p.Context + p.BeforeAttach + p.Unexplained }

func TestPartsAlwaysAddUp(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	some := func() int64 { return random.Int64N(6) * mib * random.Int64N(200) }
	for range 20000 {
		a := Account{Used: some(), Explained: some(), Managed: some(), Born: random.IntN(2) == 0, Context: some()}
		a.Floor = some()
		p := Reconcile(a)
		require.Equal(t, a.Used, p.sum(), "%+v", a)
		require.GreaterOrEqual(t, min(p.Stacks, p.Context, p.BeforeAttach), int64(0), "%+v", a)
		if p.Unexplained >= 0 {
			var rows int64
			for _, r := range p.Rows(profile.Process{}) {
				require.NoError(t, r.Check())
				rows += r.InuseBytes
			}
			require.Equal(t, a.Used, p.Stacks+rows, "a flame graph adds up to the driver's number")
		}
	}
}

func TestContextsAreOnTheStacksThatMadeThem(t *testing.T) {
	made := func(line uint32, device int32, objects int64) profile.Row {
		return profile.Row{Process: profile.Process{PID: 7}, Kind: profile.KindContext, Device: device,
			Stack:  stack.Stack{{Kind: stack.KindPython, Function: "init", File: "train.py", Line: line}},
			Values: profile.Values{InuseObjects: objects, AllocObjects: objects}}
	}
	rows := Parts{Context: 1001, Unexplained: 4}.Rows(profile.Process{PID: 7}, made(3, 0, 1), made(9, 1, 1))
	require.Len(t, rows, 3)
	for n, want := range []struct {
		line   uint32
		device int32
		bytes  int64
	}{{3, 0, 500}, {9, 1, 501}} {
		require.Equal(t, FrameContext, rows[n].Stack[0].Function)
		require.Equal(t, want.line, rows[n].Stack[1].Line)
		require.Equal(t, want.device, rows[n].Device)
		require.Equal(t, want.bytes, rows[n].InuseBytes)
		require.Zero(t, rows[n].InuseObjects, "the context's own row has them")
	}
	require.Equal(t, FrameUnexplained, rows[2].Stack.Folded())
	require.Len(t, Parts{Context: 5}.Rows(profile.Process{}, made(3, 0, 0)), 1, "it is shown without a line")
}

func TestRowsAreNamedFrames(t *testing.T) {
	p := Parts{Stacks: 1, Context: 2, BeforeAttach: 3, Unexplained: 4}
	var frames []string
	for _, r := range p.Rows(profile.Process{PID: 7}) {
		require.Equal(t, uint32(7), r.Process.PID)
		frames = append(frames, r.Stack.Folded())
	}
	require.Equal(t, []string{FrameContext, FrameBeforeAttach, FrameUnexplained}, frames)
	require.Empty(t, Parts{Unexplained: -4}.Rows(profile.Process{}))
}

// An old process, then a new one: the latter's context shows how much of the former's
// memory is context.
func TestTrackerLearnsTheContextFromProcessesThatWereBornLater(t *testing.T) {
	born := map[uint32]bool{20: true}
	tr := tracker{processes: map[uint64]*history{}, born: func(pid uint32) bool { return born[pid] }}
	name := func(pid uint32) profile.Process { return profile.Process{PID: pid, Comm: "x"} }
	gpu := Device{UUID: "GPU-0"}
	rows := map[uint32]held{}
	use := func(pid uint32, bytes int64) ProcessMemory { return ProcessMemory{gpu, pid, bytes} }

	got := tr.update([]ProcessMemory{use(10, 900)}, rows, name)
	require.Equal(t, []Breakdown{{name(10), 900, Parts{BeforeAttach: 900}}}, got)

	rows[20] = held{process: profile.Process{ID: 77, PID: 20, Pod: "llm-0"}, explained: 50}
	got = tr.update([]ProcessMemory{use(10, 900), use(20, 350)}, rows, name)
	require.Equal(t, Parts{Context: 300, BeforeAttach: 600}, got[0].Parts)
	require.Equal(t, Parts{Stacks: 50, Context: 300}, got[1].Parts)
	require.Equal(t, "llm-0", got[1].Process.Pod)

	// The old one frees its memory and allocates again.
	rows[10] = held{process: name(10), explained: 500}
	got = tr.update([]ProcessMemory{use(10, 1000)}, rows, name)
	require.Equal(t, Parts{Stacks: 500, Context: 300, BeforeAttach: 200}, got[0].Parts)
	require.Len(t, tr.processes, 1, "what has no context any more is forgotten")

	got = tr.update([]ProcessMemory{use(10, 0)}, rows, name)
	require.Empty(t, got, "a driver that does not say how much explains nothing")
}

func TestEveryMetricIsInTheDocs(t *testing.T) {
	docs, err := os.ReadFile("../../../docs/reference/metrics.md")
	require.NoError(t, err)
	for _, m := range append(Metrics(), processTable...) {
		require.Contains(t, string(docs), "`"+m.Name+"`")
	}
}

func TestStartTimeOfAProcessWithAHostileName(t *testing.T) {
	stat := "42 (a) b (c 1 2 3 ) S 1 42 42 0 -1 4194560 1 0 0 0 1 2 3 4 20 0 1 0 12345 1000 2 18446744073709551615"
	require.Equal(t, 123450*time.Millisecond, startTime([]byte(stat)))
	for _, bad := range []string{"", "42 (a) S", "42 (a", ") 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 -7"} {
		require.Zero(t, startTime([]byte(bad)), bad)
	}
}

// Rows of one process have the labels of their spans, in no order: what is of the process keeps its series.
func TestAProcessHasTheLabelsThatItsRowsHaveInCommon(t *testing.T) {
	for range 8 {
		rows := map[uint32]held{}
		for labels := range map[string]bool{"team=a,request=/chat": true, "team=a,request=/summary": true, "team=a,request=": true} {
			addHeld(rows, profile.Process{ID: 1, PID: 10, Labels: labels}, "device", 1)
		}
		require.Equal(t, "team=a,request=", rows[10].process.Labels)
		require.EqualValues(t, 3, rows[10].explained)
		addHeld(rows, profile.Process{ID: 2, PID: 10, Labels: "team=b,request="}, "device", 1)
		require.Equal(t, "team=b,request=", rows[10].process.Labels, "another process of that pid")
	}
}
