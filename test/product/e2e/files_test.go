// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/pprof/profile"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/examples/simcuda/journal"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject"
)

// line is one line of --jsonl-out.
type line struct {
	Type            string `json:"type"`
	PID             uint32 `json:"pid"`
	Process         string `json:"process"`
	Row             string `json:"row"`
	Kind            string `json:"kind"`
	Device          int32  `json:"device"`
	AllocBytes      int64  `json:"alloc_bytes"`
	AllocObjects    int64  `json:"alloc_objects"`
	FreedBytes      int64  `json:"freed_bytes"`
	FreedObjects    int64  `json:"freed_objects"`
	ImplicitBytes   int64  `json:"implicit_bytes"`
	ImplicitObjects int64  `json:"implicit_objects"`
	InuseBytes      int64  `json:"inuse_bytes"`
	InuseObjects    int64  `json:"inuse_objects"`
	API             string `json:"api"`
	Error           string `json:"error"`
	RefusedBy       string `json:"refused_by"`
	RequestedBytes  int64  `json:"requested_bytes"`
	Stack           stackFrames
	Holders         []struct {
		Bytes int64
		Stack stackFrames
	}
}

type stackFrames []struct {
	Function, File, Kind string
	Line                 uint32
}

// readLines parses a file of JSON lines and returns the latest line of each row,
// and all others.
func readLines(t *testing.T, path string) (rows, ooms []line) {
	t.Helper()
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	require.True(t, bytes.HasSuffix(content, []byte("\n")), "the last line is whole")
	return parseLines(t, content)
}

// parseLines leaves out a last line that is not whole yet.
func parseLines(t *testing.T, content []byte) (rows, ooms []line) {
	t.Helper()
	content = content[:bytes.LastIndexByte(content, '\n')+1]
	at := map[string]int{}
	for text := range strings.Lines(string(content)) {
		var l line
		require.NoError(t, json.Unmarshal([]byte(text), &l), text)
		switch l.Type {
		case "alloc":
			if i, ok := at[l.Row]; ok {
				rows[i] = l
			} else {
				at[l.Row] = len(rows)
				rows = append(rows, l)
			}
		case "oom":
			ooms = append(ooms, l)
		default:
			require.Fail(t, "unknown type", text)
		}
	}
	return rows, ooms
}

// readProfile parses a pprof file and returns the sums by sample type.
func readProfile(t *testing.T, path string) (*profile.Profile, map[string]int64) {
	t.Helper()
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	p, err := profile.ParseData(content)
	require.NoError(t, err)
	require.NoError(t, p.CheckValid())
	sums := map[string]int64{}
	for _, s := range p.Sample {
		for i, v := range s.Value {
			sums[p.SampleType[i].Type] += v
		}
	}
	return p, sums
}

var pageData = regexp.MustCompile(`(?s)<script type="application/json" id="data">(.*?)</script>`)

func TestFilesAreCompleteForEveryWayToEndARun(t *testing.T) {
	t.Parallel()
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP) // ig-gpu takes it, also where the tests run under nohup
	for _, how := range []string{"SIGINT", "SIGTERM", "SIGHUP", "timeout", "reader ends", "reader ends with SIGINT"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			testFilesAreComplete(t, how)
		})
	}
}

func testFilesAreComplete(t *testing.T, how string) {
	t.Helper()
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	w := subject.StartSteps(t)
	w.Load()
	require.NoError(t, os.WriteFile(path("p.pb.gz"), []byte("before"), 0o600))
	args := []string{"--pid", fmt.Sprint(w.PID()), "--pprof-out", path("p.pb.gz"),
		"--flamegraph-out", path("f.html"), "--jsonl-out", path("l.jsonl")}
	const limit = 10 * time.Second // longer than the rest takes on a busy machine
	if how == "timeout" {
		args = append(args, "--timeout", limit.String())
	}
	r := start(t, args...)
	r.waitAttached(w.PID())
	w.Do("alloc kv_cache 3 1000000")
	w.Do("alloc logits 10 5000")
	w.Do("free logits 9")
	r.waitRows("rows of the process", w.PID(), allocs(13))
	for _, name := range []string{"p.pb.gz", "f.html"} { // complete or not at all
		content, err := os.ReadFile(path(name))
		require.True(t, os.IsNotExist(err) || string(content) == "before", name)
	}
	w.Do("alloc weights 1 777") // within the last interval: nothing is omitted

	began := time.Now()
	if strings.HasPrefix(how, "reader ends") { // as head does, and tee by Ctrl-C
		require.NoError(t, r.out.Close())
	}
	switch how {
	case "SIGINT", "reader ends with SIGINT":
		require.NoError(t, r.cmd.Process.Signal(syscall.SIGINT))
	case "SIGTERM":
		require.NoError(t, r.cmd.Process.Signal(syscall.SIGTERM))
	case "SIGHUP":
		require.NoError(t, r.cmd.Process.Signal(syscall.SIGHUP))
	}
	require.Zero(t, r.exit(), r.errors())
	took := time.Since(began)
	t.Logf("ended in %v, %v after the start", took.Round(time.Millisecond),
		time.Since(r.began).Round(time.Millisecond))
	if how == "timeout" {
		require.GreaterOrEqual(t, time.Since(r.began), limit)
	}
	require.Less(t, took, limit+waitLimit/2)

	truth := w.Truth()
	want := requireProfile(t, path("p.pb.gz"), truth)
	require.Equal(t, want, inPage(t, path("f.html")))

	lines, _ := readLines(t, path("l.jsonl"))
	inuse := int64(0)
	for _, l := range lines {
		require.EqualValues(t, w.PID(), l.PID)
		inuse += l.InuseBytes
	}
	require.EqualValues(t, truth.InUseBytes(), inuse)

	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 3, "no temporary file is left")
}

// requireProfile compares the sums of a profile with those of the driver, and returns them.
func requireProfile(t *testing.T, path string, truth journal.Total) (want map[string]int64) {
	t.Helper()
	p, sums := readProfile(t, path)
	want = map[string]int64{
		"alloc_objects": int64(truth.AllocObjects), "alloc_space": int64(truth.AllocBytes),
		"inuse_objects": int64(truth.InUseObjects()), "inuse_space": int64(truth.InUseBytes()),
	}
	peak := sums["peak_space"] // the highest that a reading saw
	require.GreaterOrEqual(t, peak, want["inuse_space"])
	require.LessOrEqual(t, peak, int64(truth.PeakBytes))
	want["peak_space"] = peak
	require.Equal(t, want, sums)
	var functions []string
	for _, f := range p.Function {
		functions = append(functions, f.Name)
	}
	require.Subset(t, functions, []string{"kv_cache", "logits", "weights", "Server.alloc", "main"})
	return want
}

// inPage returns the sums of the rows of a flame graph's page, by type.
func inPage(t *testing.T, path string) map[string]int64 {
	t.Helper()
	page, err := os.ReadFile(path)
	require.NoError(t, err)
	require.True(t, bytes.HasSuffix(bytes.TrimSpace(page), []byte("</html>")))
	found := pageData.FindSubmatch(page)
	require.NotNil(t, found)
	var data struct {
		Strings  []string
		Types    []string
		Profiles []struct{ Rows []int64 }
	}
	require.NoError(t, json.Unmarshal(found[1], &data))
	require.Subset(t, data.Strings, []string{"kv_cache", "logits", "weights"})
	all := map[string]int64{}
	for rows := data.Profiles[0].Rows; len(rows) > 0; rows = rows[2+len(data.Types):] {
		for i, name := range data.Types {
			all[name] += rows[2+i]
		}
	}
	return all
}

func TestPathThatCannotBeWrittenIsAnErrorAtTheStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, flag := range []string{"--pprof-out", "--flamegraph-out", "--jsonl-out"} {
		for _, path := range []string{filepath.Join(dir, "missing", "file"), dir, "/proc/file"} {
			began := time.Now()
			text := fails(t, gadget(t, flag, path))
			require.Contains(t, text, path)
			require.Contains(t, text, flag)
			require.Less(t, time.Since(began), waitLimit/2)
		}
	}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries)
}
