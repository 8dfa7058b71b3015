// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// agent is a running ig-gpu.
type agent struct {
	*child
	rows     atomic.Int64 // of the data source allocs, printed so far
	attached chan struct{}
	firstRow chan time.Duration // since it was executed
}

var rowMark = []byte(`"alloc_objects":`)

// startAgent runs the gadget on what the benchmark starts, so that other users
// of a GPU do not count. That costs a look-up more for every call.
func (b *bench) startAgent(args ...string) (*agent, error) {
	a := &agent{attached: make(chan struct{}), firstRow: make(chan time.Duration, 1)}
	onLine := func(line []byte) {
		if n := bytes.Count(line, rowMark); n > 0 {
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
	a.child, err = start(nil, b.agent, append([]string{"run", "cuda_alloc", "--host",
		"--pid", strconv.Itoa(os.Getpid()), "-o", "json"}, args...)...)
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
	for _, c := range []struct {
		name, target string
		d            time.Duration
		command      []string
	}{
		{"nothing to trace", "", 5 * time.Second, nil},
		{"20,000 pairs/s, one row", "user 1 %, 150", 20 * time.Second,
			[]string{b.workload, "-l", b.library, "-n", "100000000", "-r", "20000"}},
		{"20,000 pairs/s from 100 lines of Python", "", 8 * time.Second,
			[]string{"python3", b.depth, b.library, "rows", "100", "20000"}},
		{"20,000 pairs/s from 5,000 lines of Python", "", 8 * time.Second,
			[]string{"python3", b.depth, b.library, "rows", "5000", "20000"}},
	} {
		if err := b.agentCase(c.name, c.target, c.d, c.command); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return nil
}

func (b *bench) agentCase(name, target string, d time.Duration, command []string) error {
	a, err := b.startAgent()
	if err != nil {
		return err
	}
	defer a.stop()
	if command != nil {
		w, err := start(nil, command[0], command[1:]...)
		if err != nil {
			return err
		}
		defer w.stop()
		if _, err := a.waitRow(); err != nil {
			return fmt.Errorf("%w %s", err, w.errors.String())
		}
	}
	time.Sleep(2 * time.Second) // what is done once is not the matter here
	from, err := a.usage()
	if err != nil {
		return err
	}
	rows, begun := a.rows.Load(), time.Now()
	time.Sleep(d)
	to, err := a.usage()
	if err != nil {
		return err
	}
	wall := time.Since(begun).Seconds()
	percent := (to.cpu - from.cpu).Seconds() / wall * 100
	share := 0.0
	if all := to.user + to.system - from.user - from.system; all > 0 {
		share = float64(to.user-from.user) / float64(all)
	}
	b.row(name, target, strconv.FormatFloat(percent, 'f', 2, 64), strconv.FormatFloat(percent*share, 'f', 2, 64),
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
	b.row("median of 5 ("+strings.Join(list, " ")+")", "2", strconv.FormatFloat(median(all), 'f', 2, 64))
	return nil
}
