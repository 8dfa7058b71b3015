// SPDX-License-Identifier: Apache-2.0

// Package pipelines runs examples/pipelines: our gadgets through the operators of
// Inspektor Gadget itself, with a workload whose memory is known.
package pipelines

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

	"github.com/gpu-gadgets/gpu-gadgets/test/support/bpftest"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/loopback"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject/tables"
)

// waitLimit is how long a condition may take on a busy machine.
const waitLimit = 2 * time.Minute

// row is a row of a table, or an event, with the fields that the tests use.
type row struct {
	Proc struct {
		PID int `json:"pid"`
	} `json:"proc"`
	Frame     string `json:"frame"`
	Inuse     uint64 `json:"inuse_bytes"`
	Samples   uint64 `json:"samples"`
	Requested uint64 `json:"requested_bytes"`
	Error     string `json:"error"`
	Holders   string `json:"holders"`
}

func startWorkload(t *testing.T) *subject.Steps {
	t.Helper()
	w := subject.StartSteps(t, "SIMCUDA_CAPACITY=1GiB")
	w.Load()
	return w
}

const (
	kib = 1 << 10
	mib = 1 << 20
)

// allocate leaves 16 MiB with kv_cache, 4 with weights, 2 with encoder_cache, 4 KiB with
// staging and 12 MiB with activations, which has given back as much before. It is refused
// 2 GiB, and a size of 0 for another reason.
func allocate(t *testing.T, w *subject.Steps) {
	t.Helper()
	w.Do("alloc weights 4 %d", mib)
	w.Do("alloc kv_cache 8 %d", 2*mib)
	w.Do("alloc activations 6 %d", 4*mib)
	w.Do("free activations 3")
	w.Do("alloc staging 1 %d", 4*kib)
	w.Do("alloc encoder_cache 2 %d", mib)
	require.Equal(t, "ok 1", w.Request("alloc workspace 1 %d", 2<<30))
	require.Equal(t, "ok 1", w.Request("alloc logits 1 0"))
}

// pipeline is a running example.
type pipeline struct {
	t      *testing.T
	pid    int
	mu     sync.Mutex
	tables map[string][]row // the latest with rows, by a field that only its data source has
	events []row
	output bytes.Buffer
}

// start runs an example for a workload, and waits until that is attached to.
func start(t *testing.T, name string, w *subject.Steps, env ...string) *pipeline {
	t.Helper()
	bpftest.RequireRoot(t)
	p := &pipeline{t: t, pid: w.PID(), tables: map[string][]row{}}
	cmd := exec.Command("examples/pipelines/"+name+".sh", "--host", "--pid", fmt.Sprint(p.pid), "-o", "json")
	cmd.Dir, cmd.Env, cmd.Stderr = "../../..", append(os.Environ(), env...), os.Stderr
	pipe, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	attached, ended := make(chan bool), make(chan bool)
	go func() {
		defer close(ended)
		said := false
		for lines := bufio.NewReader(tables.Reader(pipe)); ; {
			line, err := lines.ReadBytes('\n')
			p.take(line)
			if !said && bytes.Contains(line, []byte(`"status":"attached"`)) {
				said = true
				close(attached)
			}
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGINT)
		<-ended
		_ = cmd.Wait()
		if t.Failed() {
			output := p.output.Bytes()
			t.Logf("%s, the end of what it said:\n%s", name, output[max(0, len(output)-8000):])
		}
	})
	select {
	case <-attached:
	case <-ended:
		require.Fail(t, "it ended", name)
	case <-time.After(waitLimit):
		require.Fail(t, "nothing is attached", name)
	}
	return p
}

func (p *pipeline) take(line []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.output.Write(line)
	var table []row
	var event row
	switch {
	case json.Unmarshal(line, &table) == nil:
		for _, field := range []string{"inuse_bytes", "samples"} {
			if len(table) > 0 && bytes.Contains(line, []byte(`"`+field+`":`)) {
				p.tables[field] = table
			}
		}
	case bytes.Contains(line, []byte(`"requested_bytes":`)) && json.Unmarshal(line, &event) == nil:
		p.events = append(p.events, event)
	}
}

// held is frames and bytes of the latest table, in its order.
func (p *pipeline) held() (all []string) {
	for _, r := range p.tables["inuse_bytes"] {
		function, _, _ := strings.Cut(r.Frame, " ")
		all = append(all, fmt.Sprint(function, " ", r.Inuse))
	}
	return all
}

func (p *pipeline) eventually(want any, got func() any) {
	p.t.Helper()
	deadline := time.Now().Add(waitLimit)
	for {
		p.mu.Lock()
		last := got()
		p.mu.Unlock()
		if fmt.Sprint(last) == fmt.Sprint(want) {
			return
		}
		if time.Now().After(deadline) {
			require.Equal(p.t, want, last)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// Each example has a test, and each test an example.
func TestEachExampleIsTested(t *testing.T) {
	found, err := filepath.Glob("../../../examples/pipelines/*.sh")
	require.NoError(t, err)
	require.Len(t, found, len(holders)+4)
	for _, path := range found {
		name := strings.TrimSuffix(filepath.Base(path), ".sh")
		if _, ok := holders[name]; !ok {
			require.Contains(t, []string{"refused", "prometheus", "busy", "driver"}, name)
		}
	}
}

// holders are the contents of the examples with tables of memory, in their order.
var holders = map[string][]string{
	"top":  {fmt.Sprint("kv_cache ", 16*mib), fmt.Sprint("activations ", 12*mib), fmt.Sprint("weights ", 4*mib)},
	"code": {fmt.Sprint("kv_cache ", 16*mib), fmt.Sprint("encoder_cache ", 2*mib)},
	"held": {fmt.Sprint("kv_cache ", 16*mib), fmt.Sprint("weights ", 4*mib), fmt.Sprint("encoder_cache ", 2*mib)},
}

func TestTables(t *testing.T) {
	for name, want := range holders {
		t.Run(name, func(t *testing.T) {
			w := startWorkload(t)
			p := start(t, name, w)
			allocate(t, w)
			p.eventually(want, func() any { return p.held() })
		})
	}
}

func TestRefused(t *testing.T) {
	w := startWorkload(t)
	p := start(t, "refused", w)
	allocate(t, w)
	require.Equal(t, "ok 1", w.Request("alloc staging 1 %d", 3<<30))
	p.eventually([]string{"workspace 2147483648", "staging 3221225472"}, func() any {
		var got []string
		for _, e := range p.events {
			function, _, _ := strings.Cut(e.Frame, " ")
			require.Equal(t, "CUDA_ERROR_OUT_OF_MEMORY", e.Error)
			require.Contains(t, e.Holders, "16.0 MiB kv_cache (steps.py:")
			got = append(got, fmt.Sprint(function, " ", e.Requested))
		}
		return got
	})
}

func TestPrometheus(t *testing.T) {
	address := loopback.FreeAddress(t)
	w := startWorkload(t)
	p := start(t, "prometheus", w, "LISTEN="+address)
	allocate(t, w)
	labels := []string{fmt.Sprintf(`proc_pid="%d"`, p.pid), `kind="device"`, `proc_comm="python3"`}
	const want = 34*mib + 4*kib
	p.eventually(fmt.Sprint(want), func() any {
		all, err := loopback.Scrape(t, address)
		if err != nil {
			return err.Error()
		}
		var found string
		for _, s := range all {
			if strings.HasPrefix(s.Name, "inuse_bytes") && s.Has(labels...) {
				found = fmt.Sprint(int64(s.Value))
			}
		}
		return found
	})
}

// busy: a process that calculates is at the top, and one that waits is not there.
func TestBusy(t *testing.T) {
	cmd := exec.Command("python3", "../../systems/stock/testdata/busy.py")
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	out := &bytes.Buffer{}
	run := exec.Command("examples/pipelines/busy.sh", "--host", "--pid", fmt.Sprint(cmd.Process.Pid), "--timeout", "5", "-o", "json")
	run.Dir, run.Stdout, run.Stderr = "../../..", out, os.Stderr
	require.NoError(t, run.Run())
	p := &pipeline{t: t, tables: map[string][]row{}}
	for lines := bufio.NewScanner(tables.Reader(out)); lines.Scan(); {
		p.take(lines.Bytes())
	}
	rows := p.tables["samples"]
	require.NotEmpty(t, rows, out.String())
	require.LessOrEqual(t, len(rows), 5)
	require.Contains(t, rows[0].Frame, "Model.forward (busy.py:")
	for i, r := range rows {
		require.Equal(t, cmd.Process.Pid, r.Proc.PID)
		require.LessOrEqual(t, r.Samples, rows[max(0, i-1)].Samples)
	}
}
