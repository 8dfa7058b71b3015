// SPDX-License-Identifier: Apache-2.0

// Package usage reads what a process takes from /proc: processor time, memory, and the eBPF objects that
// it has open.
package usage

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/schedstat"
)

// tick is the unit of times in /proc/PID/stat: USER_HZ is 100 on all architectures of Linux that have Go.
const tick = 10 * time.Millisecond

// CPU is the time that a process has taken so far, in user space and in the kernel.
func CPU(pid int) (user, system time.Duration, err error) { return times(pid, 14) }

// ChildrenCPU is the time of the children of a process that have ended and that it has waited for, and of theirs.
func ChildrenCPU(pid int) (user, system time.Duration, err error) { return times(pid, 16) }

// times reads two fields of proc(5) from the nth on.
func times(pid, nth int) (user, system time.Duration, err error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, err
	}
	// They are counted after the name, which is field 2.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < nth-1 {
		return 0, 0, fmt.Errorf("/proc/%d/stat: %q", pid, stat)
	}
	for i, to := range []*time.Duration{&user, &system} {
		n, err := strconv.ParseInt(fields[nth-3+i], 10, 64)
		if err != nil {
			return 0, 0, fmt.Errorf("/proc/%d/stat: %w", pid, err)
		}
		*to = time.Duration(n) * tick
	}
	return user, system, nil
}

// Scheduled is how long the threads of a process have run so far, and how long they were ready to and
// waited for a processor. Threads that have ended are not in it.
func Scheduled(pid int) (ran, waited time.Duration, err error) {
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return 0, 0, err
	}
	for _, thread := range threads {
		tid, err := strconv.ParseUint(thread.Name(), 10, 32)
		if err != nil {
			return 0, 0, fmt.Errorf("a thread of process %d: %w", pid, err)
		}
		s, err := schedstat.Read("/proc", uint32(pid), uint32(tid))
		if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.ESRCH) { // it has not ended meanwhile
			return 0, 0, err
		}
		ran, waited = ran+s.Ran, waited+s.Waited
	}
	return ran, waited, nil
}

// Memory is a field of /proc/PID/status in bytes, such as VmHWM (the most that was resident), VmRSS (what
// is) and RssAnon (without pages of files, which may be evicted at any time).
func Memory(pid int, field string) (int64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if text, ok := strings.CutPrefix(line, field+":"); ok {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(text), " kB"), 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("no %s in /proc/%d/status", field, pid)
}

// Descriptor is an open file of a process.
type Descriptor struct {
	Target string            // as of a symbolic link
	Info   map[string]string // the fields of its fdinfo
}

// Descriptors are those that are open for as long as they are read.
func Descriptors(pid int) (all []Descriptor, err error) {
	dir := fmt.Sprintf("/proc/%d", pid)
	files, err := os.ReadDir(filepath.Join(dir, "fd"))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		target, err := os.Readlink(filepath.Join(dir, "fd", file.Name()))
		if err != nil {
			continue // closed meanwhile
		}
		text, err := os.ReadFile(filepath.Join(dir, "fdinfo", file.Name()))
		if err != nil {
			continue
		}
		d := Descriptor{Target: target, Info: map[string]string{}}
		for line := range strings.Lines(string(text)) {
			if name, value, ok := strings.Cut(line, ":"); ok {
				d.Info[name] = strings.TrimSpace(value)
			}
		}
		all = append(all, d)
	}
	return all, nil
}

// Programs are the eBPF programs that a process has open, each once; not those that only a link of it
// has.
func Programs(pid int) (ids []ebpf.ProgramID, err error) {
	all, err := Descriptors(pid)
	for _, d := range all {
		if d.Target != "anon_inode:bpf-prog" {
			continue
		}
		id, err := strconv.ParseUint(d.Info["prog_id"], 10, 32)
		if err != nil {
			return nil, fmt.Errorf("the id of a program of process %d: %w", pid, err)
		}
		if !slices.Contains(ids, ebpf.ProgramID(id)) {
			ids = append(ids, ebpf.ProgramID(id))
		}
	}
	return ids, err
}

// Maps is how many eBPF maps a process has open, and the bytes that they take.
func Maps(pid int) (n int, size int64, err error) {
	all, err := Descriptors(pid)
	seen := map[string]bool{}
	for _, d := range all {
		if d.Target != "anon_inode:bpf-map" || seen[d.Info["map_id"]] {
			continue
		}
		seen[d.Info["map_id"]] = true
		one, err := strconv.ParseInt(d.Info["memlock"], 10, 64)
		if err != nil {
			return 0, 0, fmt.Errorf("the memory of a map of process %d: %w", pid, err)
		}
		n, size = n+1, size+one
	}
	return n, size, err
}
