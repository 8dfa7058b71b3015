// SPDX-License-Identifier: Apache-2.0

// Package hangs tests nccl_trace's verdicts as a user sees them: bin/ig-gpu on ranks in
// processes of their own, which really wait for each other in the simulated NCCL.
package hangs

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gpu-gadgets/gpu-gadgets/internal/ig"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/bpftest"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/job"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject/tables"
)

// waitLimit is how long a condition may take on a busy machine.
const waitLimit = 2 * time.Minute

type process struct {
	PID uint32 `json:"pid"`
}

// hang is a row of the data source hangs, as -o json prints it.
type hang struct {
	Event     string  `json:"event"`
	Reason    string  `json:"reason"`
	Text      string  `json:"text"`
	Name      string  `json:"name"`
	Operation string  `json:"operation"`
	Rank      int     `json:"rank"`
	Waiting   string  `json:"waiting"`
	State     string  `json:"state"`
	Line      string  `json:"line"`
	UserLine  string  `json:"user_line"`
	Stack     string  `json:"stack"`
	WaitedNS  int64   `json:"waited_ns"`
	SinceNS   int64   `json:"since_boot_ns"`
	RAS       string  `json:"ras"`
	Seq       uint64  `json:"seq"`
	FirstSeq  uint64  `json:"first_seq"`
	Proc      process `json:"proc"`
	read      int64   // boot clock
}

type rank struct {
	Name      string  `json:"name"`
	Rank      int     `json:"rank"`
	Issued    uint64  `json:"issued"`
	Done      uint64  `json:"done"`
	Operation string  `json:"operation"`
	Verdict   string  `json:"verdict"`
	State     string  `json:"state"`
	Where     string  `json:"where"`
	Stack     string  `json:"stack"`
	Proc      process `json:"proc"`
}

type attachment struct {
	PID    uint32 `json:"pid"`
	Path   string `json:"path"`
	Status string `json:"status"`
}

// gadget is a run of ig-gpu.
type gadget struct {
	t      *testing.T
	cmd    *exec.Cmd
	done   chan struct{}
	mu     sync.Mutex
	stderr bytes.Buffer
	hangs  []hang
	ranks  []rank
	tables int
	files  map[uint32]map[string]bool // libraries with probes, by process
	// name of the job's communicator: ig-gpu sees those of other tests, too. With hasSplits, communicators without a
	// name are the job's, too.
	name      string
	hasSplits bool
}

func start(t *testing.T, threshold string, args ...string) *gadget {
	t.Helper()
	bpftest.RequireRoot(t)
	program, err := filepath.Abs("../../../bin/ig-gpu")
	require.NoError(t, err)
	_, err = os.Stat(program)
	require.NoError(t, err, "run make build")
	g := &gadget{t: t, done: make(chan struct{}), name: fmt.Sprintf("job %d", time.Now().UnixNano()), files: map[uint32]map[string]bool{},
		cmd: exec.Command(program, append([]string{"run", "nccl_trace", "--host", "--hang", threshold,
			"-o", "hangs:json,collectives:json,attachments:json,drops:json"}, args...)...)}
	stdout, err := g.cmd.StdoutPipe()
	require.NoError(t, err)
	stderr, err := g.cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, g.cmd.Start())
	var readers sync.WaitGroup
	readers.Go(func() {
		lines := bufio.NewReaderSize(tables.Reader(stdout), 1<<20)
		for {
			line, err := lines.ReadBytes('\n')
			g.take(bytes.TrimSpace(line))
			if err != nil {
				return
			}
		}
	})
	readers.Go(func() {
		lines := bufio.NewScanner(stderr)
		for lines.Scan() {
			g.mu.Lock()
			g.stderr.WriteString(lines.Text() + "\n")
			g.mu.Unlock()
		}
	})
	go func() {
		readers.Wait()
		_ = g.cmd.Wait() // the exit code is checked by the caller that ends the run
		close(g.done)
	}()
	t.Cleanup(func() {
		_ = g.cmd.Process.Kill()
		<-g.done
		if t.Failed() {
			t.Logf("ig-gpu said:\n%s", g.errors())
		}
	})
	return g
}

func (g *gadget) errors() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.stderr.String()
}

func (g *gadget) take(line []byte) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case len(line) == 0:
	case bytes.HasPrefix(line, []byte(`[{"type":"drops"`)):
		g.tables++ // counts are there from the start on, ranks are not
	case line[0] == '[':
		var ranks []rank
		if json.Unmarshal(line, &ranks) == nil {
			g.ranks = slices.DeleteFunc(ranks, func(r rank) bool { return !g.isOfJob(r.Name) })
			g.tables++
		}
	case bytes.Contains(line, []byte(`"waited_ns":`)):
		h := hang{read: bootTime()}
		if err := json.Unmarshal(line, &h); err != nil {
			g.t.Errorf("%v: %s", err, line)
		}
		if g.isOfJob(h.Name) {
			g.hangs = append(g.hangs, h)
		}
	case line[0] == '{':
		var a attachment
		if json.Unmarshal(line, &a) == nil && a.Status == "attached" {
			if g.files[a.PID] == nil {
				g.files[a.PID] = map[string]bool{}
			}
			g.files[a.PID][filepath.Base(a.Path)] = true
		}
	}
}

func (g *gadget) isOfJob(communicator string) bool {
	return communicator == g.name || g.hasSplits && communicator == ""
}

func bootTime() int64 {
	return int64(ig.SinceBoot())
}

// wait polls until the condition holds, with the run locked.
func (g *gadget) wait(what string, holds func() bool) {
	g.t.Helper()
	for deadline := time.Now().Add(waitLimit); ; time.Sleep(10 * time.Millisecond) {
		g.mu.Lock()
		ok := holds()
		g.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-g.done:
			require.Fail(g.t, "ig-gpu has ended: "+what)
		default:
		}
		require.True(g.t, time.Now().Before(deadline), "waited %v: %s", waitLimit, what)
	}
}

// run starts the ranks, and has them begin when all of them have their probes.
func (g *gadget) run(args ...string) *job.Job {
	g.t.Helper()
	return g.begin(func() *job.Job { return job.Start(g.t, g.name, args...) })
}

func (g *gadget) begin(start func() *job.Job) *job.Job {
	g.t.Helper()
	g.wait("the gadget runs", func() bool { return g.tables > 0 })
	j := start()
	g.wait("probes in all ranks", func() bool {
		for _, pid := range j.PIDs {
			if len(g.files[pid]) < 2 {
				return false
			}
		}
		return true
	})
	j.Begin()
	return j
}

// first waits for a row of hangs that is wanted.
func (g *gadget) first(what string, isWanted func(hang) bool) (found hang) {
	g.t.Helper()
	g.wait(what, func() bool {
		n := slices.IndexFunc(g.hangs, isWanted)
		if n < 0 {
			return false
		}
		found = g.hangs[n]
		return true
	})
	return found
}

// verdict waits for the first one with this reason; empty: of any.
func (g *gadget) verdict(reason string) hang {
	g.t.Helper()
	return g.first("verdict", func(h hang) bool { return reason == "" || h.Reason == reason })
}

// TestAStoppedRankIsNamedUntilItContinues: both cases of a user whose job hangs.
func TestAStoppedRankIsNamedUntilItContinues(t *testing.T) {
	for _, c := range []struct{ story, stop, operation string }{
		{"pipeline", "recv", "Recv"},
		{"pipeline", "broadcast", "Broadcast"},
	} {
		t.Run(c.story+" before "+c.stop, func(t *testing.T) {
			const threshold = 4 * time.Second // longer than a busy machine lets a rank wait
			g := start(t, threshold.String())
			j := g.run("--story", c.story, "--stop", c.stop)
			found := g.verdict("dead")
			t.Logf("%s", found.Text)
			t.Logf("said %v after the wait began, read %v after", time.Duration(found.WaitedNS), time.Duration(found.read-found.SinceNS))
			require.NotEqual(t, "cleared", found.Event)
			require.Equal(t, "dead", found.Reason)
			require.Equal(t, "stopped", found.State)
			require.Contains(t, found.Text, "of communicator "+g.name+" (0x")
			require.Equal(t, c.operation, found.Operation)
			require.Equal(t, 1, found.Rank)
			require.Equal(t, j.PIDs[1], found.Proc.PID)
			require.GreaterOrEqual(t, found.WaitedNS, int64(threshold))
			require.Contains(t, found.Text, "rank 1 of 3 is stopped, before "+c.operation)
			// The line at which it stopped itself, and not where it last called NCCL.
			g.wait("the line where it is now", func() bool {
				const line = "Rank.stop_before (train.py:"
				return strings.Contains(found.Stack, line) || len(g.ranks) > 0 && g.ranks[0].Rank == 1 && strings.Contains(g.ranks[0].Stack, line)
			})

			// It is stopped for five seconds at least.
			time.Sleep(time.Until(time.Now().Add(5*time.Second - time.Duration(bootTime()-found.SinceNS))))
			before := bootTime()
			require.NoError(t, unix.Kill(int(j.PIDs[1]), unix.SIGCONT))
			var cleared hang
			g.wait("cleared", func() bool {
				cleared = g.hangs[len(g.hangs)-1]
				return cleared.Event == "cleared" && cleared.SinceNS == found.SinceNS
			})
			g.mu.Lock()
			defer g.mu.Unlock()
			t.Logf("%s", cleared.Text)
			require.Equal(t, found.SinceNS, cleared.SinceNS)
			// It ended between SIGCONT and the report.
			require.Greater(t, cleared.SinceNS+cleared.WaitedNS, before)
			require.Less(t, cleared.SinceNS+cleared.WaitedNS, cleared.read)
			for _, h := range g.hangs {
				isMeanwhile := h.SinceNS >= found.SinceNS && h.SinceNS < cleared.SinceNS+cleared.WaitedNS
				require.True(t, h.Rank == 1 || !isMeanwhile, "another rank was blamed: %s", h.Text)
			}
		})
	}
}

// TestTheThreadToBlameIsNotTheOneThatCallsNCCL: where another thread issues the collectives,
// that one waits, too; the verdict has the line of the program that keeps it waiting, and the
// library's that it is in.
func TestTheThreadToBlameIsNotTheOneThatCallsNCCL(t *testing.T) {
	g := start(t, "4s")
	j := g.run("--story", "relay", "--stall")
	found := g.first("the verdict with its line", func(h hang) bool { return h.Reason == "missing" && h.Rank == 1 && h.UserLine != "" })
	t.Log(found.Text)
	require.Equal(t, j.PIDs[1], found.Proc.PID)
	require.Regexp(t, `^Rank\.load_batch \(train\.py:\d+\)$`, found.UserLine)
	require.Regexp(t, `^Condition\.wait \(threading\.py:\d+\)$`, found.Line)
	require.Contains(t, found.Text, "rank 1 of 3 is missing and sleeps, before AllReduce ")
	require.Contains(t, found.Text, "; at "+found.UserLine+", in "+found.Line+", process ")
	require.NotContains(t, found.Stack, "Relay.run")
	g.wait("the table's line", func() bool {
		return len(g.ranks) == 3 && g.ranks[0].Rank == 1 && g.ranks[0].Where == found.UserLine+", in "+found.Line
	})
}

// TestAnEndedRankIsNamed, in the table and in logs.
func TestAnEndedRankIsNamed(t *testing.T) {
	receiver := receiveLogs(t)
	g := start(t, "4s", "--otlp-endpoint", receiver.URL, "--otlp-protocol", "http", "--node", "n1")
	j := g.run("--story", "training")
	g.wait("collectives", func() bool { return len(g.ranks) == 3 && g.ranks[0].Issued > 20 })
	require.NoError(t, unix.Kill(int(j.PIDs[2]), unix.SIGKILL))
	verdict := g.verdict("dead")
	g.wait("table", func() bool { return len(g.ranks) == 3 && g.ranks[0].Verdict == "dead" && g.ranks[0].Rank == 2 })
	t.Log(verdict.Text)
	require.Contains(t, verdict.Text, "rank 2 of 3 has exited, before ")
	g.wait("log", func() bool { return receiver.find("dead", "ERROR", verdict.Text) != nil })
	record := receiver.find("dead", "ERROR", verdict.Text)
	require.Equal(t, "nccl.verdict", record.EventName)
	attributes := map[string]string{}
	for _, a := range record.Attributes {
		attributes[a.Key] = a.Value.GetStringValue()
	}
	require.Equal(t, g.name, attributes["nccl.communicator.name"])
	require.Equal(t, "gone", attributes["nccl.rank.state"])
}

// TestHealthyJobsHaveNoVerdict, for the duration in HEALTHY: random jitter, and
// checkpoints of up to two seconds of single ranks.
func TestHealthyJobsHaveNoVerdict(t *testing.T) {
	length := 15 * time.Second
	if s := os.Getenv("HEALTHY"); s != "" {
		var err error
		length, err = time.ParseDuration(s)
		require.NoError(t, err)
	}
	g := start(t, "30s", "--straggler", "1s") // on a busy machine one rank may really be the last
	g.run("--checkpoint", "100")
	g.wait("collectives", func() bool { return len(g.ranks) == 3 && g.ranks[0].Issued > 20 })
	g.mu.Lock()
	first := g.ranks[0].Issued
	g.mu.Unlock()
	time.Sleep(length)
	g.mu.Lock()
	defer g.mu.Unlock()
	require.Empty(t, g.hangs)
	last := uint64(0)
	for _, r := range g.ranks {
		require.Empty(t, r.Verdict)
		last = max(last, r.Issued)
	}
	require.Greater(t, last, first)
	t.Logf("%v: %d collectives, no verdict", length, last-first)
}
