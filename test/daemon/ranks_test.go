// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// job is a run of test/hangs' train.py: ranks that really wait for each other.
type job struct {
	pids []uint32
	name string
	in   func()
}

func startJob(t *testing.T, args ...string) *job {
	t.Helper()
	dir := t.TempDir()
	library := func(example, pattern string) string {
		out, err := exec.Command("make", "-s", "-C", "../../examples/"+example, "OUT="+dir).CombinedOutput()
		require.NoError(t, err, "%s", out)
		found, err := filepath.Glob(filepath.Join(dir, pattern))
		require.NoError(t, err)
		require.NotEmpty(t, found)
		return found[0]
	}
	j := &job{name: fmt.Sprintf("job %d", os.Getpid())}
	cmd := exec.Command("python3", append([]string{"../hangs/train.py", "--libcuda", library("simcuda", "libcuda.so.*"),
		"--libnccl", library("simnccl", "libnccl.so.*"), "--name", j.name}, args...)...)
	cmd.Env = append(os.Environ(), "SIMCUDA_INIT_MS=0", "SIMNCCL_DIR="+t.TempDir())
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL) // its ranks, too, the stopped one among them
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	require.NoError(t, err)
	var said struct{ Pids []uint32 }
	require.NoError(t, json.Unmarshal(line, &said))
	j.pids = said.Pids
	j.in = func() {
		_, err := fmt.Fprintln(stdin, "go")
		require.NoError(t, err)
	}
	return j
}

// trace has a daemon follow some of the ranks, until both libraries of each have probes.
func (n *node) trace(pids ...uint32) {
	n.t.Helper()
	n.start()
	list := strings.ReplaceAll(strings.Trim(fmt.Sprint(pids), "[]"), " ", ",")
	require.NoError(n.t, n.create("nccl_trace", map[string]string{"operator.attach.pid": list, "operator.ranks.hang": "4s"}))
	n.waitAttached(int(pids[0]))
	ctx, cancel := context.WithTimeout(n.t.Context(), patience)
	defer cancel()
	files := map[string]bool{}
	require.True(n.t, n.payloads(ctx, "attachments", func(ds datasource.DataSource, payload []byte) bool {
		d, err := ds.NewPacketSingleFromRaw(payload)
		require.NoError(n.t, err)
		pid, _ := ds.GetField("pid").Uint32(d)
		path, _ := ds.GetField("path").String(d)
		if status, _ := ds.GetField("status").String(d); status == "attached" {
			files[fmt.Sprint(pid, path)] = true
		}
		return len(files) < 2*len(pids)
	}), "not all libraries are attached to: %v", files)
}

// rank waits until the table of a daemon shows a rank as it should be.
func (n *node) rank(holds func(value func(field string) string, isLast bool) bool) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), patience)
	defer cancel()
	found := false
	n.tables(ctx, "collectives", func(ds datasource.DataSource, rows datasource.PacketArray) bool {
		for i := range rows.Len() {
			d := rows.Get(i)
			isLast, err := ds.GetField("last").Bool(d)
			require.NoError(n.t, err)
			found = found || holds(func(name string) string {
				s, err := ds.GetField(name).String(d)
				require.NoError(n.t, err)
				return s
			}, isLast)
		}
		return !found
	})
	require.True(n.t, found, "the table does not show it")
}

// claim is a verdict without what differs by when, and from where, it was told.
var claim = regexp.MustCompile(`(rank \d+ of \d+ is stopped, before [A-Za-z]+ \d+ of communicator .* \(0x[0-9a-f]+\)) \(waited`)

// Ranks of one job on two nodes, each with a daemon: where one stands still, its own node
// sees nobody wait for it, and the other one not who is missing. The exporter says what a
// run of ig-gpu says that sees all of them.
func TestRanksOfTwoNodesAreOneJob(t *testing.T) {
	one, two := newNode(t), newNode(t)
	j := startJob(t, "--story", "pipeline", "--stop", "broadcast")
	one.trace(j.pids[0], j.pids[2])
	two.trace(j.pids[1])
	local := start(t, program(t), "run", "nccl_trace", "--host", "--pid", strings.ReplaceAll(strings.Trim(fmt.Sprint(j.pids), "[]"), " ", ","),
		"--hang", "4s", "-o", "hangs:json,collectives:json,attachments:none,drops:none")
	eventually(t, "ig-gpu does not run", func() bool { return strings.Contains(local.output(), "[") })
	j.in()

	// The daemon of the stopped rank reads where it is, although nobody there waits.
	two.rank(func(value func(string) string, isLast bool) bool {
		return value("state") == "stopped" && !isLast && strings.Contains(value("stack"), "Rank.stop_before (train.py:")
	})
	one.rank(func(value func(string) string, _ bool) bool { return value("verdict") == "elsewhere" })
	var told string
	eventually(t, "ig-gpu, which sees all ranks, says nothing", func() bool {
		told = claim.FindString(local.output())
		return told != ""
	})

	address, otlp := freeAddress(t), startCollector(t)
	e := startExporter(t, "--address", "one=unix://"+one.socket+",two=unix://"+two.socket, "--hang", "4s",
		"--metrics-listen", address, "--otlp-endpoint", otlp.url)
	pattern := regexp.MustCompile(`found +dead +` + regexp.QuoteMeta(told) + ` .* by ranks 0, 2\); at Rank\.stop_before \(train\.py:\d+\), process ` +
		fmt.Sprint(j.pids[1]) + ` python3 on two`)
	eventually(t, "not the verdict of one who sees all ranks", func() bool { return pattern.MatchString(e.output()) })
	t.Log(pattern.FindString(e.output()))
	eventually(t, "no metric", func() bool {
		v, _ := scrape(t, address, "nccl_verdict", `reason="dead"`, `rank="1"`, `k8s_node_name="two"`)
		return v == 1
	})
	require.NotContains(t, e.output(), "elsewhere", "all ranks are seen")
	eventually(t, "no log", func() bool {
		_, logs := otlp.read(int(j.pids[1]))
		return len(logs) > 0 && strings.Contains(logs[0], "is stopped, before Broadcast 41") && strings.Contains(logs[0], "nccl.communicator.name")
	})

	require.NoError(t, unix.Kill(int(j.pids[1]), unix.SIGCONT))
	eventually(t, "it does not clear", func() bool { return strings.Contains(e.output(), "cleared dead") })
	eventually(t, "the metric does not end", func() bool {
		_, found := scrape(t, address, "nccl_verdict", `reason="dead"`)
		return !found
	})
	e.end()
	require.NotRegexp(t, `found +(missing|mismatch|unmatched|slow)`, e.output(), "and nobody else was blamed")
}
