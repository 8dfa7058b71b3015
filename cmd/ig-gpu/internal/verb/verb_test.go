// SPDX-License-Identifier: Apache-2.0

package verb

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gpu-gadgets/gpu-gadgets/cmd/ig-gpu/internal/engine"
	"github.com/gpu-gadgets/gpu-gadgets/cmd/ig-gpu/internal/help"
	"github.com/gpu-gadgets/gpu-gadgets/operators/judge/ooms"
)

// recorder is an engine that keeps what it was to run.
type recorder struct {
	mu   sync.Mutex
	runs []engine.Run
}

func (r *recorder) Run(_ context.Context, run engine.Run) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.runs = append(r.runs, run)
	return nil
}

// procfs has one process that maps CUDA, 7, and one that does not, 8.
func procfs(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for pid, maps := range map[string]string{
		"7": "1000-2000 r-xp 0 0:1 7 /usr/lib/libcuda.so.550.54.14\n3000-4000 r-xp 0 0:1 8 /usr/bin/python3.11\n",
		"8": "1000-2000 r-xp 0 0:1 7 /usr/lib/libcudadebugger.so.1\n",
	} {
		dir := filepath.Join(root, pid)
		require.NoError(t, os.Mkdir(dir, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "maps"), []byte(maps), 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "cmdline"), []byte("python3\x00serve\x1b[31m.py\x00"), 0o600))
	}
	return root
}

// execute runs one verb of the configuration.
func execute(t *testing.T, cfg Config, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	root := &cobra.Command{Use: "ig-gpu", SilenceErrors: true, SilenceUsage: true}
	help.Install(root)
	root.AddCommand(Commands(cfg)...)
	var out, errs bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&errs)
	root.SetArgs(args)
	err = root.Execute()
	return out.String(), errs.String(), err
}

func TestVerbsAreRunsOfTheRightGadget(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"dump", "7"}, "ig-gpu run py_stack --pid 7 --mode dump --format text"},
		{[]string{"dump", "7,8", "-o", "json"}, "ig-gpu run py_stack --pid 7,8 --mode dump --format rows -o json"},
		{[]string{"record", "7\n8", "-o", "m.html", "--for", "2m"}, "ig-gpu run cuda_alloc --pid 7,8 --flamegraph-out m.html --timeout 2m0s"},
		{[]string{"record", "7", "-o", "m.pb.gz", "-o", "m.jsonl", "--for", "5"}, "ig-gpu run cuda_alloc --pid 7 --pprof-out m.pb.gz --jsonl-out m.jsonl --timeout 5s"},
		{[]string{"record", "7", "--what", "launches", "-o", "t.html"}, "ig-gpu run cuda_kernel --pid 7 --timeline-html t.html --timeout 30s"},
		{[]string{"record", "7", "--what", "launches", "-o", "t.json.gz"}, "ig-gpu run cuda_kernel --pid 7 --timeline-out t.json.gz --timeout 30s"},
		{[]string{"record", "7", "--what", "collectives", "-o", "t.parquet"}, "ig-gpu run nccl_trace --pid 7 --events-out t.parquet --timeout 30s"},
		{[]string{"record", "7", "--what", "cpu", "-o", "t.pb.gz"}, "ig-gpu run py_stack --pid 7 --pprof-out t.pb.gz --timeout 30s"},
	} {
		e := &recorder{}
		_, _, err := execute(t, Config{Engine: e, ProcFS: procfs(t)}, c.args...)
		require.NoError(t, err, c.args)
		require.Len(t, e.runs, 1)
		require.Equal(t, c.want, e.runs[0].Command())
	}
}

func TestSignalsEndACommandAndDoNotKillIt(t *testing.T) {
	signal.Notify(make(chan os.Signal, 1), unix.SIGHUP) // the tests themselves may run under nohup
	for _, by := range []unix.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP} {
		ctx, stop := interruptible(&cobra.Command{})
		require.NoError(t, unix.Kill(os.Getpid(), by))
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Second):
			require.Fail(t, "the context did not end", by)
		}
		stop()
	}
}

func TestMistakesSayWhatIsWanted(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"dump", ""}, "the process id is empty"},
		{[]string{"dump", "x"}, `"x" is not a process id`},
		{[]string{"dump", "7", "-o", "xml"}, "want text or json"},
		{[]string{"dump", "7", "--frozen", "500ms"}, "--frozen 500ms: want at least 2s"},
		{[]string{"dump", "7", "--frozen", "0"}, "at least 2s"},
		{[]string{"record", "7"}, "say where to write with -o FILE"},
		{[]string{"record", "7", "-o", "m.svg"}, ".html, .pb.gz, .pprof, .pickle, .json, .jsonl, .ndjson"},
		{[]string{"record", "7", "-o", "m.parquet"}, "-o m.parquet: this format is for --what launches and --what collectives. For --what memory: .html"},
		{[]string{"record", "7", "-o", "a.html", "-o", "b.html"}, "one file of each form"},
		{[]string{"record", "7", "--what", "launches", "-o", "l.jsonl", "-o", "l.parquet"}, "both are for the events"},
		{[]string{"record", "7", "-o", "a.html", "--what", "gpu"}, "memory, launches, cpu, collectives"},
		{[]string{"record", "7", "-o", "a.html", "--for", "soon"}, "want a duration such as 30s"},
		{[]string{"explain", "7", "--for", "1s"}, "at least 2s"},
		{[]string{"report"}, "name a profile"},
		{[]string{"diff", "a"}, "name two profiles"},
		{[]string{"leaks", "a"}, "name 4 or more profiles"},
	} {
		e := &recorder{}
		_, _, err := execute(t, Config{Engine: e, ProcFS: procfs(t)}, c.args...)
		require.ErrorContains(t, err, c.want, c.args)
		require.Empty(t, e.runs)
	}
}

func TestAPageHasEverySentenceWithItsFigure(t *testing.T) {
	f := newFacts([]uint32{7}, 10*time.Second)
	f.commands, f.users, f.hasPython, f.read = []string{"python3 serve.py"}, f.pids[:1], true, 10
	f.windows = [2]int{3, 3}
	f.places["load"] = &place{frame: "load (serve.py:10)", low: [2]uint64{4 << 30, 4 << 30}, now: 4 << 30, taken: 4 << 30}
	f.places["cache"] = &place{frame: "cache (serve.py:20)", low: [2]uint64{26 << 20, 286 << 20}, now: 286 << 20, taken: 286 << 20}
	f.places["tensor"] = &place{frame: "embed (model.py:5)", low: [2]uint64{1 << 30, 1 << 30}, now: 1 << 30, isTensor: true}
	f.refused.all = []ooms.Failure{{Frame: "grow (serve.py:30)", API: "cuMemAlloc_v2", Error: "CUDA_ERROR_OUT_OF_MEMORY", Device: 3, RequestedBytes: 2 << 30,
		Holders: "4.00 GiB load (serve.py:10)", InuseBytes: 4 << 30, By: "libvgpu.so"}}
	f.waits["run"] = &waiting{frame: "run (serve.py:40)", launches: 1000, waitNS: 2e9, waits: 3}
	f.drops["cuda_alloc"] = map[string]uint64{"stacks_full": 3, "inflight_full": 0}
	f.driver = 8 << 30
	var out bytes.Buffer
	require.NoError(t, writeSentences(&out, compose(f), false))
	for _, want := range []string{
		"4.28 GiB is held", "4.00 GiB (93.5 %) by load (serve.py:10)", "It grew by 260 MiB",
		"An allocation was refused: cuMemAlloc_v2 of 2.00 GiB on GPU 3 at grow (serve.py:30): CUDA_ERROR_OUT_OF_MEMORY by libvgpu.so, not by the driver.\n" +
			"    It held 4.00 GiB on that GPU of what was allocated after ig-gpu attached: 4.00 GiB load (serve.py:10).\n",
		"1000 kernels and graphs were launched, 100 per second", "Threads waited for the GPU for 2s",
		"cache (serve.py:20): it holds 260 MiB more than 3s ago", "driver counts 8.00 GiB", "3 calls whose stack did not fit in the table: their numbers are under [unknown], and in every total [stacks_full]",
		"PyTorch's tensors hold 1.00 GiB", "more: ig-gpu record 7 -o memory.html",
	} {
		require.Contains(t, out.String(), want)
	}
	require.NotContains(t, out.String(), "inflight_full")

	out.Reset()
	f.verdict = []string{"rank 1 of 4 is stopped"}
	require.NoError(t, writeSentences(&out, compose(f), true))
	blamed := ""
	for line := range strings.Lines(out.String()) {
		var s sentence
		require.NoError(t, json.Unmarshal([]byte(line), &s))
		if s.Part == "Look first at" {
			blamed = s.Text
		}
	}
	require.Equal(t, "rank 1 of 4 is stopped", blamed, "a rank that hangs comes first")
}

// A process that calls nothing may be frozen.
func TestExplainNamesWhatComparesDumpsIfNothingIsCalled(t *testing.T) {
	for calls, want := range map[int64]bool{0: true, 3: false} {
		f := newFacts([]uint32{7}, 10*time.Second)
		f.users, f.read = f.pids[:1], 10
		if calls > 0 {
			f.waits["copy"] = &waiting{frame: "copy (serve.py:40)", copied: uint64(calls)}
		}
		var out bytes.Buffer
		require.NoError(t, writeSentences(&out, compose(f), false))
		require.Equal(t, want, strings.Contains(out.String(), "more: ig-gpu dump 7 --frozen 10s"), out.String())
	}
}

// Another gadget that fails does not take the memory's explanation away.
type failing struct{}

func (f *failing) Run(_ context.Context, run engine.Run) error {
	if run.Gadget == "cuda_kernel" {
		return errors.New("no")
	}
	return nil
}

func TestExplainSaysWhichGadgetDidNotRun(t *testing.T) {
	out, _, err := execute(t, Config{Engine: &failing{}, ProcFS: procfs(t)}, "explain", "7", "--for", "2")
	require.NoError(t, err)
	require.Contains(t, out, "cuda_kernel did not run: no")
	require.Contains(t, out, "no rows were read")
}

func TestTheHelpOfAVerbFitsAScreen(t *testing.T) {
	for _, verb := range Commands(Config{}) {
		root := &cobra.Command{Use: "ig-gpu"}
		help.Install(root)
		root.AddCommand(verb)
		var out bytes.Buffer
		root.SetOut(&out)
		root.SetArgs([]string{verb.Name(), "--help"})
		require.NoError(t, root.Execute())
		require.LessOrEqual(t, strings.Count(out.String(), "\n"), 40, verb.Name())
		require.Contains(t, out.String(), "Examples:", verb.Name())
		for line := range strings.Lines(out.String()) {
			require.LessOrEqual(t, len([]rune(strings.TrimRight(line, "\n"))), help.Width, "%s: %s", verb.Name(), line)
		}
	}
}

func TestCommandsAreBrief(t *testing.T) {
	require.Equal(t, "python3 examples/inference.py --leak", brief("/opt/python3.11/bin/python3 examples/inference.py --leak", 60))
	require.Equal(t, "python3", brief("/usr/bin/python3", 60))
	require.Equal(t, "vllm serve /a…", brief("vllm serve /a/model", 14))
	require.Empty(t, brief("", 60))
}
