// SPDX-License-Identifier: Apache-2.0

package k8s

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// row is a row of -o json, with the fields that the tests use.
type row struct {
	K8s struct {
		Namespace string `json:"namespace"`
		Pod       string `json:"podName"`
		Container string `json:"containerName"`
		Node      string `json:"node"`
	} `json:"k8s"`
	Proc struct {
		PID  uint32 `json:"pid"`
		Comm string `json:"comm"`
	} `json:"proc"`
	Process       uint64 `json:"process"`
	StackID       uint64 `json:"stack_id"`
	Device        int    `json:"device"`
	Kind          string `json:"kind"`
	Frame         string `json:"frame"`
	Stack         string `json:"stack"`
	AllocBytes    uint64 `json:"alloc_bytes"`
	FreedBytes    uint64 `json:"freed_bytes"`
	ImplicitBytes uint64 `json:"implicit_bytes"`
	InuseBytes    uint64 `json:"inuse_bytes"`
}

// pod is the origin of a row.
type pod struct{ namespace, name string }

// gadget is a running kubectl gadget.
type gadget struct {
	t     *testing.T
	c     *cluster
	cmd   *exec.Cmd
	ended chan error

	mu     sync.Mutex
	tables int   // of drops: there is one each second from the start
	rows   []row // the latest table of allocs
	fresh  int   // how many tables of allocs there were
	seen   map[pod]bool
	most   map[uint64]uint64 // allocated bytes by process, whose rows may have been removed since
	drops  map[string]uint64
	text   bytes.Buffer // output that is not JSON
	stderr bytes.Buffer
}

// gadget starts a command of bash that prints JSON, or a table. It is ended with the
// test, as by Ctrl-C.
func (c *cluster) gadget(t *testing.T, kubeconfig, text string) *gadget {
	t.Helper()
	g := &gadget{t: t, c: c, cmd: c.command(kubeconfig, "exec "+strings.TrimSpace(text)),
		ended: make(chan error, 1), seen: map[pod]bool{}, most: map[uint64]uint64{}, drops: map[string]uint64{}}
	g.cmd.Stderr = &g.stderr
	stdout, err := g.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, g.cmd.Start())
	go func() {
		lines := bufio.NewReaderSize(stdout, 1<<20)
		for {
			line, err := lines.ReadBytes('\n')
			g.take(bytes.TrimSpace(line))
			if err != nil {
				break
			}
		}
		g.ended <- g.cmd.Wait()
	}()
	t.Cleanup(func() {
		g.stop()
		if t.Failed() {
			t.Logf("%s\n%s\n%s", text, g.stderr.String(), g.text.String())
		}
	})
	return g
}

// take assigns a line to a table by its fields, because kubectl gadget does not name its
// data source.
func (g *gadget) take(line []byte) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case bytes.Contains(line, []byte(`"reason":`)):
		var drops []struct {
			Reason string `json:"reason"`
			Count  uint64 `json:"count"`
		}
		if json.Unmarshal(line, &drops) == nil {
			g.tables++
			for _, d := range drops {
				if d.Count > 0 {
					g.drops[d.Reason] = d.Count
				}
			}
		}
	case bytes.Contains(line, []byte(`"alloc_bytes":`)):
		var rows []row
		if json.Unmarshal(line, &rows) == nil {
			rows = once(rows)
			g.rows = rows
			g.fresh++
			now := map[uint64]uint64{}
			for _, r := range rows {
				g.seen[r.pod()] = true
				now[r.Process] += r.AllocBytes
			}
			for process, bytes := range now {
				g.most[process] = max(g.most[process], bytes)
			}
		}
	case !bytes.HasPrefix(line, []byte("[")):
		g.text.Write(append(line, '\n'))
	}
}

// once leaves one row of each stack, the latest. The client of v0.55.0 puts all that
// arrives within a second into one table (its operator combiner), so it has two or three
// readings if a busy node sends late.
func once(rows []row) (all []row) {
	type key struct {
		process, stack uint64
		kind           string
		device         int
	}
	at := map[key]int{}
	for _, r := range rows {
		k := key{r.Process, r.StackID, r.Kind, r.Device}
		if i, met := at[k]; met {
			all[i] = r
			continue
		}
		at[k] = len(all)
		all = append(all, r)
	}
	return all
}

func (r row) pod() pod { return pod{r.K8s.Namespace, r.K8s.Pod} }

// wait polls until the condition holds, for which the gadget is locked.
func (g *gadget) wait(what string, holds func() bool) {
	g.t.Helper()
	defer func() {
		if g.t.Failed() {
			g.mu.Lock()
			defer g.mu.Unlock()
			rows, _ := json.MarshalIndent(g.rows, "", " ")
			g.t.Logf("the latest table of %d: %s", g.fresh, rows[:min(len(rows), 6000)])
		}
	}()
	for deadline := time.Now().Add(waitLimit); ; time.Sleep(100 * time.Millisecond) {
		g.mu.Lock()
		ok := holds()
		g.mu.Unlock()
		if ok {
			return
		}
		select {
		case err := <-g.ended:
			g.ended <- err
			require.Fail(g.t, "it ended before "+what, "%v: %s", err, g.stderr.String())
		case err := <-g.c.node:
			g.c.node <- err
			require.Fail(g.t, "the node ended before "+what, "%v", err)
		default:
		}
		require.True(g.t, time.Now().Before(deadline), "%v are not enough for %s", waitLimit, what)
	}
}

// until polls for a while; it may also end meanwhile.
func (g *gadget) until(limit time.Duration, holds func() bool) bool {
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		g.mu.Lock()
		ok := holds()
		g.mu.Unlock()
		if ok {
			return true
		}
	}
	return false
}

// inuse adds up the latest table by pod.
func (g *gadget) inuse() map[pod]uint64 {
	sums := map[pod]uint64{}
	for _, r := range g.rows {
		sums[r.pod()] += r.InuseBytes
	}
	return sums
}

// requireNames checks that every byte of a pod has the Python line that allocated it.
func (g *gadget) requireNames(p pod, holds uint64) {
	g.t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	require.Equal(g.t, holds, g.named(p), "bytes of %s with a line of Python; %v", p.name, g.drops)
}

// named adds up a pod's memory in use below a line of Python; the gadget is locked
// meanwhile.
func (g *gadget) named(p pod) (sum uint64) {
	for _, r := range g.rows {
		if r.pod() == p && strings.Contains(r.Frame, " (inference.py:") {
			sum += r.InuseBytes
		}
	}
	return sum
}

// stop is Ctrl-C. It returns how it ended.
func (g *gadget) stop() error {
	g.cmd.Process.Signal(syscall.SIGINT)
	select {
	case err := <-g.ended:
		g.ended <- err
		return err
	case <-time.After(time.Minute):
		g.cmd.Process.Kill()
		err := <-g.ended
		g.ended <- err
		g.t.Error("it did not end on Ctrl-C")
		return err
	}
}
