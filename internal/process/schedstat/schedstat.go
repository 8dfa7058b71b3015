// SPDX-License-Identifier: Apache-2.0

// Package schedstat reads how long threads ran and how long they waited for a processor
// (Documentation/scheduler/sched-stats.rst).
package schedstat

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Stat has the totals of a thread since it started.
type Stat struct {
	// Ran is on a processor, Waited ready to run without one. Since Linux 6.12 it can have sleep of a thread that
	// was moved to another processor meanwhile (enqueue_task() in kernel/sched/core.c, of one with sched_delayed).
	Ran, Waited time.Duration
	Turns       uint64 // how often it has got a processor
}

// Read reads a thread's.
func Read(procfs string, pid, tid uint32) (Stat, error) {
	path := filepath.Join(procfs, strconv.FormatUint(uint64(pid), 10), "task", strconv.FormatUint(uint64(tid), 10), "schedstat")
	b, err := os.ReadFile(path)
	if err != nil {
		return Stat{}, fmt.Errorf("read how long thread %d of process %d ran: %w", tid, pid, err)
	}
	s, err := parse(string(b))
	if err != nil {
		return Stat{}, fmt.Errorf("read how long thread %d of process %d ran: %w", tid, pid, err)
	}
	return s, nil
}

func parse(text string) (Stat, error) {
	fields := strings.Fields(text)
	if len(fields) != 3 {
		return Stat{}, fmt.Errorf("%.40q is not a schedstat file", text)
	}
	var n [3]uint64
	for i, field := range fields {
		var err error
		if n[i], err = strconv.ParseUint(field, 10, 63); err != nil {
			return Stat{}, fmt.Errorf("%.40q is not a schedstat file: %w", text, err)
		}
	}
	return Stat{time.Duration(n[0]), time.Duration(n[1]), n[2]}, nil
}
