// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject"
)

func TestRowsNameTheLineAndTheWayToIt(t *testing.T) {
	t.Parallel()
	w := subject.StartSteps(t)
	w.Load()
	r := start(t, "--pid", fmt.Sprint(w.PID()))
	r.waitAttached(w.PID())
	w.Do("alloc weights 2 1000000")
	w.Do("alloc kv_cache 1 5000000")
	w.Do("free weights 1")
	rows := r.waitRows("rows of the process", w.PID(), func(rows []row) bool {
		return allocs(3)(rows) && len(rows) == 2
	})

	byFrame := map[string]row{}
	for _, x := range rows {
		byFrame[x.Frame] = x
		require.Equal(t, "device", x.Kind)
		require.Equal(t, "python3", x.Proc.Comm)

		// From the program's start to the driver.
		python, native, found := strings.Cut(x.Stack, "; <interpreter trampoline>; ")
		require.True(t, found, x.Stack)
		frames := strings.Split(python, "; ")
		require.Len(t, frames, 4, x.Stack)
		require.True(t, strings.HasPrefix(frames[0], "<module> (steps.py:"), x.Stack)
		require.True(t, strings.HasPrefix(frames[1], "main (steps.py:"), x.Stack)
		require.True(t, strings.HasPrefix(frames[2], "Server.alloc (steps.py:"), x.Stack)
		require.Equal(t, x.Frame, frames[3])
		require.NotContains(t, native, "steps.py")
		require.Contains(t, native, "cuMemAlloc_v2")
	}
	weights, cache := byFrame[subject.Frame(t, "weights")], byFrame[subject.Frame(t, "kv_cache")]
	require.EqualValues(t, 2000000, weights.AllocBytes)
	require.EqualValues(t, 1000000, weights.FreedBytes)
	require.EqualValues(t, 1000000, weights.InuseBytes)
	require.EqualValues(t, 1, weights.InuseObjects)
	require.EqualValues(t, 2000000, weights.PeakBytes)
	require.EqualValues(t, 5000000, cache.InuseBytes)

	// When the process ends, nothing is in use, and the rest is freed implicitly.
	w.End()
	r.waitRows("the end of the process in the rows", w.PID(), func(rows []row) bool {
		for _, x := range rows {
			if x.InuseBytes != 0 || x.InuseObjects != 0 {
				return false
			}
		}
		return len(rows) == 2
	})
	code, _ := r.interrupt()
	require.Zero(t, code)
	requireExact(t, w, r.last(w.PID()))
	for _, x := range r.last(w.PID()) {
		require.EqualValues(t, 1, x.ImplicitObjects)
	}
	require.Empty(t, r.odd, "every line is JSON")
	require.NotContains(t, r.errors(), "level=warning", "a run without losses warns of nothing")
	require.Equal(t, 1, strings.Count(r.errors(), "\n"), "it says that it ended with its process, and no more")
}

func TestProcessesThatRunTheSameCodeStayTwo(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.wait("the gadget runs", func() bool { return len(r.drops) > 0 })
	a, b := subject.StartSteps(t, slowStart), subject.StartSteps(t, slowStart)
	for _, w := range []*subject.Steps{a, b} {
		w.Load()
	}
	a.Do("alloc weights 1 1000")
	b.Do("alloc weights 2 30000")
	a.End()
	b.End()
	x := r.waitRows("rows of the first", a.PID(), allocs(1))
	y := r.waitRows("rows of the second", b.PID(), allocs(2))
	require.Len(t, x, 1)
	require.Len(t, y, 1)
	require.NotEqual(t, x[0].Process, y[0].Process)
	require.Equal(t, x[0].Frame, y[0].Frame)
	code, _ := r.interrupt()
	require.Zero(t, code)
	requireExact(t, a, r.last(a.PID()))
	requireExact(t, b, r.last(b.PID()))
}

// printed runs the gadget in one output mode on a workload that holds 1 MB in
// weights, 20 MB in kv_cache and 3 MB in logits, and returns what it printed.
func printed(t *testing.T, mode string) (string, *subject.Steps) {
	t.Helper()
	w := subject.StartSteps(t)
	w.Load()
	cmd := gadget(t, "-o", mode, "--pid", fmt.Sprint(w.PID()))
	r := launch(t, cmd)
	r.wait("attachment", func() bool { return strings.Contains(r.stdout.String(), "attached") })
	w.Do("alloc weights 1 1000000")
	w.Do("alloc kv_cache 2 10000000")
	w.Do("alloc logits 1 3000000")
	r.wait("the last row", func() bool { return strings.Contains(r.stdout.String(), "logits (") })
	code, _ := r.interrupt()
	require.Zero(t, code)
	require.Empty(t, r.errors())
	return r.output(), w
}

var framePattern = regexp.MustCompile(`(\w+) \(steps\.py:\d+\)`)

// TestColumnsAreSortedByInUse in the one table that a pipe gets, at the end.
func TestColumnsAreSortedByInUse(t *testing.T) {
	t.Parallel()
	w := subject.StartSteps(t)
	w.Load()
	r := launch(t, gadget(t, "-o", "allocs:columns,attachments:json", "--pid", fmt.Sprint(w.PID())))
	r.wait("attachment", func() bool { return strings.Contains(r.stdout.String(), `"status":"attached"`) })
	w.Do("alloc weights 1 1000000")
	w.Do("alloc kv_cache 2 10000000")
	w.Do("alloc logits 1 3000000")
	code, _ := r.interrupt()
	require.Zero(t, code)
	require.Empty(t, r.errors())
	text := r.output()
	require.NotContains(t, text, "\x1b", "no control codes in a pipe")
	require.Equal(t, 1, strings.Count(text, "IN-USE"), text)
	var names, lines []string
	for line := range strings.Lines(text) {
		if f := framePattern.FindStringSubmatch(line); f != nil {
			require.Contains(t, line, strconv.Itoa(w.PID()))
			names, lines = append(names, f[1]), append(lines, line)
		}
	}
	require.Equal(t, []string{"kv_cache", "logits", "weights"}, names, text)
	require.Contains(t, lines[0], "19.1 MiB")
}

func TestYAMLIsYAML(t *testing.T) {
	t.Parallel()
	text, w := printed(t, "yaml")
	found := 0
	for document := range strings.SplitSeq(text, "---\n") {
		var r row
		require.NoError(t, yaml.Unmarshal([]byte(document), &r), document)
		if r.Frame == subject.Frame(t, "kv_cache") {
			require.EqualValues(t, w.PID(), r.Proc.PID)
			require.EqualValues(t, 20000000, r.InuseBytes)
			found++
		}
	}
	require.Positive(t, found, text)
}

// It runs first and alone, to be disturbed as little as possible.
func TestFirstRowComesSoonAfterTheStart(t *testing.T) {
	w := subject.StartSteps(t)
	w.Load()
	require.Equal(t, "ok churning", w.Request("churn 65536"))
	r := start(t, "--pid", fmt.Sprint(w.PID()))
	r.waitRows("a row of the process", w.PID(), allocs(1))
	t.Logf("%v from the start to the first row", r.firstRow.Sub(r.began).Round(time.Millisecond))
	require.Less(t, r.firstRow.Sub(r.began), waitLimit/2, "2 s on an idle machine")
	code, _ := r.interrupt()
	require.Zero(t, code)
	stopChurn(t, w)
}

// No network, and an empty home: everything that is needed is in the program.
func TestRunNeedsNoNetworkAndNoImageStore(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	w := subject.StartSteps(t)
	w.Load()
	cmd := inShell(t, "mkdir -p /var/lib/ig; mount -t tmpfs none /var/lib/ig; ", "exec unshare --net", "--pid", fmt.Sprint(w.PID()))
	cmd.Env = append(os.Environ(), "HOME="+home, "XDG_DATA_HOME="+home, "XDG_CONFIG_HOME="+home, "XDG_CACHE_HOME="+home)
	r := launch(t, cmd)
	r.waitAttached(w.PID())
	w.Do("alloc weights 1 1000")
	r.waitRows("a row of the process", w.PID(), allocs(1))
	inside := fmt.Sprintf("/proc/%d/root/var/lib/ig", r.cmd.Process.Pid)
	entries, err := os.ReadDir(inside)
	require.NoError(t, err)
	require.Empty(t, entries, "nothing is stored for images")
	entries, err = os.ReadDir(home)
	require.NoError(t, err)
	require.Empty(t, entries)
	code, _ := r.interrupt()
	require.Zero(t, code)
}
