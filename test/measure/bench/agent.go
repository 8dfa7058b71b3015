// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/internal/tracer/overhead"
)

// agent is a running ig-gpu.
type agent struct {
	*child
	rows     atomic.Int64 // of the data source allocs, printed so far
	attached chan struct{}
	firstRow chan time.Duration // since it was executed
}

// startAgent runs the gadget on the programs of the benchmark, so that other users of a
// GPU do not count. That costs one more lookup for every call.
func (b *bench) startAgent(args ...string) (*agent, error) {
	a := &agent{attached: make(chan struct{}), firstRow: make(chan time.Duration, 1)}
	onLine := func(line []byte) {
		if n := bytes.Count(line, []byte(b.rowMark)); n > 0 {
			a.rows.Add(int64(n))
			select {
			case a.firstRow <- time.Since(a.begun):
			default:
			}
		} else if bytes.Contains(line, []byte(`"status":"attached"`)) {
			select {
			case <-a.attached:
			default:
				close(a.attached)
			}
		}
	}
	var err error
	a.child, err = start(nil, b.agent, append([]string{"run", b.gadget, "--host",
		"--pid", strconv.Itoa(os.Getpid()), "-o", "json"}, args...)...) // the last -o holds
	if err != nil {
		return nil, err
	}
	a.listen(onLine)
	return a, nil
}

func (a *agent) waitRow() (time.Duration, error) {
	select {
	case d := <-a.firstRow:
		return d, nil
	case <-a.done:
		return 0, fmt.Errorf("ig-gpu ended: %s", a.errors.String())
	case <-time.After(20 * time.Second):
		return 0, fmt.Errorf("ig-gpu printed no row in 20 s: %s", a.errors.String())
	}
}

// agentCost measures ig-gpu itself while others make calls.
func (b *bench) agentCost() error {
	b.title("ig-gpu, all of its threads", "CPU %", "user %", "RSS MiB", "anon MiB", "rows/s")
	profile := filepath.Join(os.TempDir(), "gpu-gadgets-bench.pb.gz")
	defer os.Remove(profile)
	rows := func(n string) []string { return []string{"python3", b.depth, b.library, "rows", n, "20000"} }
	for _, c := range []agentCase{
		{name: "nothing to trace", seconds: 5},
		{name: "nothing to trace, 100 program starts a second", seconds: 5,
			command: []string{"sh", "-c", "while sleep 0.01; do :; done"}, noRows: true},
		{name: "20,000 pairs/s, one row", target: "1 user, 150", seconds: 20,
			command: []string{b.workload, "-l", b.library, "-n", "100000000", "-r", "20000"}},
		{name: "20,000 pairs/s, 100 lines of Python", target: "1 user, 150", seconds: 8, command: rows("100")},
		{name: "20,000 pairs/s, 5,000 lines of Python", seconds: 8, command: rows("5000")},
		{name: "same, no table, a profile file", seconds: 8, command: rows("5000"),
			args: []string{"-o", "none", "--pprof-out", profile}, noRows: true},
	} {
		if err := b.agentCase(c); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return nil
}

// agentCase is one load under which ig-gpu is watched.
type agentCase struct {
	name, target string
	seconds      int
	command      []string // that makes the load
	args         []string // of ig-gpu
	noRows       bool     // ig-gpu prints none
}

func (b *bench) agentCase(c agentCase) error {
	a, err := b.startAgent(c.args...)
	if err != nil {
		return err
	}
	defer a.stop()
	if c.command != nil {
		w, err := start(nil, c.command[0], c.command[1:]...)
		if err != nil {
			return err
		}
		defer w.stop()
		if c.noRows {
			time.Sleep(time.Second)
		} else if _, err := a.waitRow(); err != nil {
			return fmt.Errorf("%w %s", err, w.errors.String())
		}
	}
	time.Sleep(2 * time.Second) // excludes work that is done once
	from, err := a.taken()
	if err != nil {
		return err
	}
	rows, begun := a.rows.Load(), time.Now()
	time.Sleep(time.Duration(c.seconds) * time.Second)
	to, err := a.taken()
	if err != nil {
		return err
	}
	wall := time.Since(begun).Seconds()
	percent := (to.cpu - from.cpu).Seconds() / wall * 100
	share := 0.0
	if all := to.user + to.system - from.user - from.system; all > 0 {
		share = float64(to.user-from.user) / float64(all)
	}
	b.row(c.name, c.target, strconv.FormatFloat(percent, 'f', 2, 64), strconv.FormatFloat(percent*share, 'f', 2, 64),
		number(float64(to.rss)/(1<<20)), number(float64(to.anon)/(1<<20)), number(float64(a.rows.Load()-rows)/wall))
	return nil
}

// startTime is from exec to the first row, of a workload that runs already.
func (b *bench) startTime() error {
	w, err := start(nil, b.workload, "-l", b.library, "-n", "100000000", "-r", "1000")
	if err != nil {
		return err
	}
	defer w.stop()
	time.Sleep(200 * time.Millisecond)
	var all []float64
	var list []string
	for range 5 {
		a, err := b.startAgent()
		if err != nil {
			return err
		}
		d, err := a.waitRow()
		a.stop()
		if err != nil {
			return err
		}
		all = append(all, d.Seconds())
		list = append(list, strconv.FormatFloat(d.Seconds(), 'f', 2, 64))
	}
	b.title("Start of ig-gpu to its first row", "s")
	b.row("median of 5 ("+strings.Join(list, " ")+")", "2", strconv.FormatFloat(overhead.Median(all), 'f', 2, 64))
	return nil
}
