// SPDX-License-Identifier: Apache-2.0

// Package holder judges whether a process that holds GPU memory is abandoned: it does nothing
// for long, and its parent is gone, or it cannot end. It reads /proc; what the process holds
// comes from the caller. A process that is only idle, such as a server without requests, is not
// abandoned.
package holder

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// tick is the unit of times in /proc: USER_HZ is 100 on all architectures that CUDA runs on.
const tick = time.Second / 100

// State of a process at one moment.
type State struct {
	Comm string
	// Mode is the state of the main thread, a letter of proc_pid_stat(5).
	Mode                   byte
	Parent, Group, Session int
	// CPU is the time that all threads have used, Start when it started, since boot.
	CPU, Start time.Duration
	// IsKilled: SIGKILL is pending, and has not ended the process.
	IsKilled bool
}

// Read reads the state of a process.
func Read(procfs string, pid uint32) (State, error) {
	stat, err := os.ReadFile(file(procfs, int(pid), "stat"))
	if err != nil {
		return State{}, fmt.Errorf("read the state of process %d: %w", pid, err)
	}
	s, ok := parseStat(stat)
	if !ok {
		return State{}, fmt.Errorf("read the state of process %d: %q is not a stat file", pid, shorten(stat))
	}
	status, err := os.ReadFile(file(procfs, int(pid), "status"))
	if err != nil {
		return State{}, fmt.Errorf("read the state of process %d: %w", pid, err)
	}
	s.IsKilled = isKilled(status)
	return s, nil
}

// InnerPID is the id of a process in its own PID namespace, which is how the process knows itself; pid where that
// cannot be read.
func InnerPID(procfs string, pid uint32) int {
	status, err := os.ReadFile(file(procfs, int(pid), "status"))
	if err != nil {
		return int(pid)
	}
	for line := range bytes.Lines(status) {
		value, ok := bytes.CutPrefix(line, []byte("NSpid:"))
		if !ok {
			continue
		}
		if fields := bytes.Fields(value); len(fields) > 0 {
			if n, err := strconv.Atoi(string(fields[len(fields)-1])); err == nil {
				return n
			}
		}
	}
	return int(pid)
}

func file(procfs string, pid int, name string) string {
	return filepath.Join(procfs, strconv.Itoa(pid), name)
}

func shorten(b []byte) []byte { return b[:min(len(b), 80)] }

// parseStat reads fields of proc_pid_stat(5). Field 2, the command's name, may contain blanks
// and parentheses: what counts is the last one.
func parseStat(stat []byte) (s State, ok bool) {
	begin, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	if begin < 0 || end < begin {
		return s, false
	}
	s.Comm = string(stat[begin+1 : end])
	fields := bytes.Fields(stat[end+1:]) // from field 3 on
	if len(fields) < 20 || len(fields[0]) != 1 {
		return s, false
	}
	s.Mode = fields[0][0]
	number := func(field int) int64 {
		n, err := strconv.ParseInt(string(fields[field-3]), 10, 54)
		if err != nil {
			ok = false
		}
		return n
	}
	ok = true
	s.Parent, s.Group, s.Session = int(number(4)), int(number(5)), int(number(6))
	s.CPU, s.Start = ticks(number(14)+number(15)), ticks(number(22))
	return s, ok
}

// ticks is a time in /proc; the longest is 292 years.
func ticks(n int64) time.Duration {
	return time.Duration(min(max(n, 0), math.MaxInt64/int64(tick))) * tick
}

// isKilled looks for SIGKILL among the pending signals of the process and of its main thread.
func isKilled(status []byte) bool {
	const sigkill = 1 << (9 - 1)
	for line := range bytes.Lines(status) {
		name, value, _ := bytes.Cut(line, []byte(":"))
		if string(name) != "SigPnd" && string(name) != "ShdPnd" {
			continue
		}
		mask, err := strconv.ParseUint(string(bytes.TrimSpace(value)), 16, 64)
		if err == nil && mask&sigkill != 0 {
			return true
		}
	}
	return false
}

// isOrphan: the process outlived those that started it. The leader of its session is gone, it
// is no leader itself, as services and the main process of a container are, and its parent is of
// another session: it was given a new one.
func (s State) isOrphan(procfs string, pid uint32) bool {
	if s.Session == int(pid) || s.Session == 0 || s.Parent == 0 {
		return false
	}
	if leader, err := os.ReadFile(file(procfs, s.Session, "stat")); err == nil {
		if l, ok := parseStat(leader); !ok || l.Session == s.Session && l.Start <= s.Start {
			return false
		}
	}
	parent, err := os.ReadFile(file(procfs, s.Parent, "stat"))
	if err != nil {
		return false
	}
	p, ok := parseStat(parent)
	return ok && p.Session != s.Session
}
