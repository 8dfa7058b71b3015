// SPDX-License-Identifier: Apache-2.0

package devicetimes

import (
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// trace is the part of a timeline that is tested here.
type trace struct {
	Metadata    struct{ Lost map[string]uint64 }
	TraceEvents []struct {
		Ph, Name, Cat string
		ID            json.Number
		Pid, Tid      int64
		TS, Dur       json.Number
		Args          map[string]any
	}
}

func readTrace(t *testing.T, path string) (f trace) {
	t.Helper()
	file, err := os.Open(path)
	require.NoError(t, err)
	defer file.Close()
	z, err := gzip.NewReader(file)
	require.NoError(t, err)
	require.NoError(t, json.NewDecoder(z).Decode(&f))
	return f
}

// event is a line of --events-out.
type event struct {
	Type, Kernel, Function, Kind, Node, Stack string
	Start                                     uint64 `json:"start_boot_ns"`
	End                                       uint64 `json:"end_boot_ns"`
	Launch                                    uint64 `json:"launch_boot_ns"`
	Correlation, Graph                        uint32
	Stream                                    uint32 `json:"gpu_stream"`
	Device, TID                               int32
}

// TestTimeline: each kernel of the journal is on the track of its stream, with its time
// and duration, after its launch, by each of two clocks; an arrow leads there.
func TestTimeline(t *testing.T) {
	for name, c := range map[string]struct {
		env []string
		log string
	}{
		"wall time":     {nil, "timed by CLOCK_REALTIME"},
		"another clock": {[]string{"SIMCUPTI_CLOCK_NS=777777777777777"}, "timed by an unknown clock"},
	} {
		t.Run(name, func(t *testing.T) {
			w := start(t, c.env)
			require.Zero(t, w.listeners())
			path, events := filepath.Join(t.TempDir(), "trace.json.gz"), filepath.Join(t.TempDir(), "events.jsonl")
			r := w.trace("--device-times", "--timeline-out", path, "--events-out", events)
			r.wait(shimName, driverName)
			w.step()
			w.listeners()
			w.step()
			w.listeners()
			all := w.reported()
			r.end()
			require.Contains(t, r.log.String(), c.log)
			launches, arrows := checkEvents(t, events, all)
			require.Equal(t, 4*steps, launches)
			checkTrace(t, readTrace(t, path), all, arrows)
		})
	}
}

type kernelKey struct {
	correlation uint32
	node        uint64
}

func kernelsOf(all []reported) map[kernelKey]reported {
	kernels := map[kernelKey]reported{}
	for _, k := range all {
		if k.What == "kernel" {
			kernels[kernelKey{k.Correlation, k.Node}] = k
		}
	}
	return kernels
}

// checkEvents compares the lines with the journal, and returns how many launches they are
// of and to how many of the kernels an arrow has to lead.
func checkEvents(t *testing.T, path string, all []reported) (launches, arrows int) {
	t.Helper()
	truth := kernelsOf(all)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	calls, seen, offsets := map[uint64]event{}, map[uint32]bool{}, map[int64]bool{}
	var found []event
	for line := range strings.Lines(string(text)) {
		var e event
		require.NoError(t, json.Unmarshal([]byte(line), &e), line)
		switch {
		case e.Type == "call" && e.Kind == "launch":
			calls[e.Start] = e
		case e.Type == "kernel":
			found = append(found, e)
		}
	}
	require.Len(t, found, len(truth))
	for _, e := range found {
		node := uint64(0)
		if e.Graph != 0 {
			require.NoError(t, json.Unmarshal([]byte(e.Node), &node))
		}
		k, ok := truth[kernelKey{e.Correlation, node}]
		require.True(t, ok, "%+v", e)
		require.Equal(t, k.End-k.Start, e.End-e.Start)
		require.Equal(t, []any{k.Name, k.Stream, k.Graph, int32(k.Device)}, []any{e.Kernel, e.Stream, e.Graph, e.Device})
		offsets[int64(e.Start)-int64(k.Start)] = true
		call, ok := calls[e.Launch]
		require.True(t, ok, "no launch at %d", e.Launch)
		require.GreaterOrEqual(t, e.Start, call.Start, "before its launch")
		require.Equal(t, []any{call.Function, call.Stack, call.TID}, []any{e.Function, e.Stack, e.TID})
		seen[e.Correlation] = true
	}
	low, high := int64(1<<62), int64(-1<<62)
	for offset := range offsets {
		low, high = min(low, offset), max(high, offset)
	}
	require.Less(t, high-low, int64(5_000_000), "one clock")
	return len(seen), len(seen)
}

func checkTrace(t *testing.T, f trace, all []reported, arrows int) {
	t.Helper()
	track := regexp.MustCompile(`^GPU 0, kernels of stream ([0-9]+)$`)
	type key struct{ pid, tid int64 }
	names, count, lead := map[key]string{}, 0, 0
	for _, e := range f.TraceEvents {
		k := key{e.Pid, e.Tid}
		switch {
		case e.Ph == "M" && e.Name == "thread_name":
			names[k] = e.Args["name"].(string)
		case e.Ph == "X" && e.Cat == "kernel":
			count++
			require.Regexp(t, track, names[k])
		case e.Ph == "f" && e.Name == "launches":
			lead++
			require.Regexp(t, track, names[k])
		}
	}
	require.Equal(t, len(kernelsOf(all)), count)
	require.Equal(t, arrows, lead)
}
