// SPDX-License-Identifier: Apache-2.0

package pytorch

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject/tables"
)

// waitLimit is how long a condition may take on a busy machine.
const waitLimit = 2 * time.Minute

// process, as rows of all data sources have it.
type process struct {
	PID uint32 `json:"pid"`
}

// attachment is a row of the data source attachments.
type attachment struct {
	PID    uint32 `json:"pid"`
	Status string `json:"status"`
	Path   string `json:"path"`
}

// drop is a row of the data source drops.
type drop struct {
	Reason string `json:"reason"`
	Count  uint64 `json:"count"`
}

// agent is a running ig-gpu. R is a row of its table.
type agent[R any] struct {
	t    *testing.T
	cmd  *exec.Cmd
	done chan struct{} // closed when all its output is read

	mu          sync.Mutex
	changed     chan struct{} // closed with the next line
	rows        []R           // the newest table
	events      []json.RawMessage
	attachments []attachment
	drops       map[string]uint64
	log         bytes.Buffer
}

// trace runs a gadget of bin/ig-gpu on a process. The table's data source is read ten times
// a second, so that a moment need not wait long.
func trace[R any](t *testing.T, p *program, gadget, table string, args ...string) *agent[R] {
	t.Helper()
	path, err := filepath.Abs("../../../bin/ig-gpu")
	require.NoError(t, err)
	_, err = os.Stat(path)
	require.NoError(t, err, "run make build")
	a := &agent[R]{t: t, done: make(chan struct{}), changed: make(chan struct{}), drops: map[string]uint64{}}
	sources, every := table+":json,attachments:json,drops:json", table+":fetch-interval=100ms,drops:fetch-interval=100ms"
	if gadget == "cuda_alloc" {
		sources, every = sources+",ooms:json", every+",pools:fetch-interval=100ms"
	} else if gadget == "nccl_trace" {
		sources += ",operation_events:json,collectives:none,hangs:json"
	}
	a.cmd = exec.Command(path, append([]string{"run", gadget, "--host", "--pid", fmt.Sprint(p.PID()), "-o", sources,
		"--annotate", every}, args...)...)
	stdout, err := a.cmd.StdoutPipe()
	require.NoError(t, err)
	stderr, err := a.cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, a.cmd.Start())
	var readers sync.WaitGroup
	readers.Go(func() {
		lines := bufio.NewReaderSize(tables.Reader(stdout), 1<<20)
		for {
			line, err := lines.ReadBytes('\n')
			if len(bytes.TrimSpace(line)) > 0 {
				a.take(line)
			}
			if err != nil {
				return
			}
		}
	})
	readers.Go(func() {
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			a.mu.Lock()
			a.log.WriteString(lines.Text() + "\n")
			a.mu.Unlock()
		}
	})
	go func() {
		readers.Wait()
		_ = a.cmd.Wait()
		close(a.done)
	}()
	t.Cleanup(func() {
		_ = a.cmd.Process.Kill()
		<-a.done
		if t.Failed() {
			t.Logf("%s\n%s", a.cmd, a.log.String())
		}
	})
	return a
}

// take sorts a line by its fields: -o json does not say whose it is.
func (a *agent[R]) take(line []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	defer func() {
		close(a.changed)
		a.changed = make(chan struct{})
	}()
	var err error
	switch {
	case bytes.HasPrefix(line, []byte("[]")): // of any source
	case bytes.Contains(line, []byte(`"reason":`)) && line[0] == '[':
		var drops []drop
		err = json.Unmarshal(line, &drops)
		for _, d := range drops {
			a.drops[d.Reason] = d.Count
		}
	case line[0] == '[':
		var rows []R
		if err = json.Unmarshal(line, &rows); err == nil {
			a.rows = rows
		}
	case bytes.Contains(line, []byte(`"symbols":`)):
		var row attachment
		err = json.Unmarshal(line, &row)
		a.attachments = append(a.attachments, row)
	default:
		a.events = append(a.events, bytes.Clone(line))
	}
	if err != nil {
		a.log.WriteString(err.Error() + ": " + string(line))
	}
}

// until waits for a condition, which is checked with each line of the output. Each may
// return what it has instead, for the failure.
func (a *agent[R]) until(what string, holds func() (bool, any)) {
	a.t.Helper()
	for late := time.After(waitLimit); ; {
		a.mu.Lock()
		ok, instead := holds()
		changed := a.changed
		a.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-a.done:
			require.Fail(a.t, "ig-gpu has ended")
		case <-late:
			require.Fail(a.t, "waited for: "+what, "%v", instead)
		}
	}
}

// attached waits until these libraries of a process are probed.
func (a *agent[R]) attached(pid int, libraries ...string) {
	a.t.Helper()
	a.until(fmt.Sprintf("%v of process %d to be probed", libraries, pid), func() (bool, any) {
		found := 0
		for _, library := range libraries {
			for _, row := range a.attachments {
				if row.PID == uint32(pid) && row.Status == "attached" && strings.HasPrefix(filepath.Base(row.Path), library) {
					found++
					break
				}
			}
		}
		return found == len(libraries), a.attachments
	})
}

// attachedTorch waits until PyTorch's libraries are probed that this gadget takes its rows from:
// each is attached on its own, and passes begin in one, tensors are reported by another.
func (a *agent[R]) attachedTorch(pid int, gadget string) {
	a.t.Helper()
	libraries := []string{"libtorch_cpu.so"}
	if gadget == "cuda_alloc" {
		libraries = append(libraries, "libc10.so")
	}
	a.attached(pid, libraries...)
}

// lost are the drops that were counted.
func (a *agent[R]) lost() map[string]uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	lost := map[string]uint64{}
	for reason, count := range a.drops {
		if count > 0 {
			lost[reason] = count
		}
	}
	return lost
}

// end is Ctrl-C; all has gone well until then, and nothing was lost but what is expected.
func (a *agent[R]) end(lost map[string]uint64) {
	a.t.Helper()
	require.NoError(a.t, a.cmd.Process.Signal(syscall.SIGINT))
	select {
	case <-a.done:
	case <-time.After(waitLimit):
		require.Fail(a.t, "ig-gpu does not end")
	}
	require.Zero(a.t, a.cmd.ProcessState.ExitCode(), a.log.String())
	require.Equal(a.t, lost, a.lost())
	require.NotContains(a.t, a.log.String(), "panic")
}
