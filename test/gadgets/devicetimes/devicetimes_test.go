// SPDX-License-Identifier: Apache-2.0

// Package devicetimes compares ig-gpu's times of kernels on the GPU with those reported
// by the CUPTI library: a workload on the simulated driver, with examples/simcupti in its
// process, whose journal is the truth.
package devicetimes

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/bpftest"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject"
)

const (
	// waitLimit is how long a condition may take on a busy machine.
	waitLimit = 2 * time.Minute
	steps     = 40
	nodes     = 4 // of the graph
)

// workload is workload.py, one step at a time.
type workload struct {
	*subject.Process
	t       *testing.T
	journal string
}

// built returns the path of a file built by make simcuda.
func built(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("../../../build", path))
	require.NoError(t, err)
	require.FileExists(t, path, "run make simcuda")
	return path
}

func start(t *testing.T, env []string, args ...string) *workload {
	t.Helper()
	shim := built(t, "simcupti/libparcagpucupti.so")
	return startWith(t, shim, append([]string{"CUDA_INJECTION64_PATH=" + shim}, env...), args...)
}

// startWith starts the workload with the library that has simcupti's own functions.
func startWith(t *testing.T, shim string, env []string, args ...string) *workload {
	t.Helper()
	bpftest.RequireRoot(t)
	driver := built(t, "simcuda/libcuda.so.1")
	w := &workload{t: t, journal: filepath.Join(t.TempDir(), "journal")}
	cmd := exec.Command("python3", append([]string{"workload.py", "--driver", driver, "--shim", shim, "--steps", fmt.Sprint(steps)}, args...)...)
	cmd.Env = append(append(os.Environ(), "SIMCUPTI_JOURNAL="+w.journal), env...)
	w.Process = subject.Start(t, cmd)
	w.Timeout = time.Hour // as long as go test waits
	return w
}

// listeners returns the workload's count of listeners when it waits.
func (w *workload) listeners() (n int) {
	w.t.Helper()
	line := w.Line()
	_, err := fmt.Sscanf(line, "listeners %d", &n)
	require.NoError(w.t, err, line)
	return n
}

// step lets it take its next step.
func (w *workload) step() { w.Say("") }

// reported is a line of the journal.
type reported struct {
	What, Name                         string
	Start, End, Node                   uint64
	Correlation, Device, Stream, Graph uint32
	Heard                              bool
}

func (w *workload) reported() (all []reported) {
	w.t.Helper()
	text, err := os.ReadFile(w.journal)
	require.NoError(w.t, err)
	for line := range strings.Lines(string(text)) {
		var n reported
		require.NoError(w.t, json.Unmarshal([]byte(line), &n), line)
		all = append(all, n)
	}
	return all
}

// row is one of the data source calls, of attachments, or of drops.
type row struct {
	Operation, Kernel, Stack, API string
	Calls, Count                  int64
	HostNS                        int64  `json:"host_ns"`
	DeviceNS                      int64  `json:"device_ns"`
	StackID                       uint64 `json:"stack_id"`
	Row                           uint64
	Device                        int32
	Time                          []int64 `json:"time_log2"`
	PID                           int
	Path, Note, Error             string
	Status                        any // of rows, a number
	Symbols                       int
	Reason                        string
}

// tracer is a run of ig-gpu.
type tracer struct {
	t        *testing.T
	cmd      *exec.Cmd
	log      bytes.Buffer
	attached chan row // of the library with CUPTI
	done     chan struct{}
	calls    map[[2]uint64]row // the newest of each, when done
	drops    map[string]int64
}

func (w *workload) trace(args ...string) *tracer {
	w.t.Helper()
	require.FileExists(w.t, "../../../bin/ig-gpu", "run make build")
	r := &tracer{t: w.t, attached: make(chan row, 16), done: make(chan struct{}), calls: map[[2]uint64]row{}, drops: map[string]int64{}}
	r.cmd = exec.Command("../../../bin/ig-gpu", append([]string{"run", "cuda_kernel", "--host", "--pid", fmt.Sprint(w.PID()),
		"-o", "calls:json,attachments:json,drops:json"}, args...)...)
	r.cmd.Stderr = &r.log
	out, err := r.cmd.StdoutPipe()
	require.NoError(w.t, err)
	require.NoError(w.t, r.cmd.Start())
	go r.read(bufio.NewReader(out))
	w.t.Cleanup(func() {
		_ = r.cmd.Process.Kill()
		<-r.done
		_ = r.cmd.Wait()
		if w.t.Failed() {
			w.t.Logf("ig-gpu: %s", r.log.String())
		}
	})
	return r
}

func (r *tracer) read(in *bufio.Reader) {
	defer close(r.done)
	for {
		line, err := in.ReadBytes('\n')
		var all []row
		if json.Unmarshal(line, &all) != nil {
			var one row
			if json.Unmarshal(line, &one) == nil {
				all = []row{one}
			}
		}
		for _, one := range all {
			switch {
			case one.Path != "":
				r.attached <- one
			case one.Reason != "":
				r.drops[one.Reason] = one.Count
			case one.Operation != "":
				r.calls[[2]uint64{one.StackID, one.Row}] = one
			}
		}
		if err != nil {
			return
		}
	}
}

// wait until it has attached to the library with CUPTI and to the driver, in any order.
func (r *tracer) wait(libraries ...string) (last row) {
	r.t.Helper()
	missing := map[string]bool{}
	for _, l := range libraries {
		missing[l] = true
	}
	for deadline := time.After(waitLimit); len(missing) > 0; {
		select {
		case a := <-r.attached:
			require.Equal(r.t, "attached", a.Status, "%+v", a)
			delete(missing, filepath.Base(a.Path))
			if filepath.Base(a.Path) == shimName {
				last = a
			}
		case <-r.done:
			r.t.Fatalf("ig-gpu has ended: %s", r.log.String())
		case <-deadline:
			r.t.Fatalf("not attached to %v: %s", missing, r.log.String())
		}
	}
	return last
}

// end lets it end by itself; calls and drops are complete then.
func (r *tracer) end() {
	r.t.Helper()
	require.NoError(r.t, r.cmd.Process.Signal(syscall.SIGINT))
	<-r.done
	require.NoError(r.t, r.cmd.Wait(), r.log.String())
}

const shimName, driverName = "libparcagpucupti.so", "libcuda.so.1"

// kernels returns the rows of kernels on the GPU, by kernel and line of Python.
func (r *tracer) kernels(operation string) map[string][2]int64 {
	sums := map[string][2]int64{}
	for _, c := range r.calls {
		if c.Operation == operation {
			where := c.Stack
			for _, method := range []string{"forward", "backward", "replay"} {
				if strings.Contains(c.Stack, "Work."+method+" ") {
					where = "Work." + method
				}
			}
			sum := sums[c.Kernel+" of "+where]
			sums[c.Kernel+" of "+where] = [2]int64{sum[0] + c.Calls, sum[1] + c.DeviceNS}
		}
	}
	return sums
}

// truth returns the same from the journal: kernels reported while there was a listener,
// by the launching function, which follows from the correlation's number.
func truth(all []reported, who func(reported) string) map[string][2]int64 {
	sums := map[string][2]int64{}
	for _, k := range all {
		if k.What == "kernel" && k.Heard {
			name := k.Name + " of " + who(k)
			sums[name] = [2]int64{sums[name][0] + 1, sums[name][1] + int64(k.End-k.Start)}
		}
	}
	return sums
}

// method returns the launching function in workload.py: five early ones, then four in each step.
func method(k reported) string {
	switch n := int(k.Correlation) - 5; {
	case n <= 0:
		return "[launch not seen]"
	case n%4 == 0:
		return "Work.replay"
	case n%4 == 3:
		return "Work.backward"
	}
	return "Work.forward"
}
