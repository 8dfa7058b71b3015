// SPDX-License-Identifier: Apache-2.0

package waits

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// syscallArguments are a system call in which a thread sleeps.
type syscallArguments struct {
	number    int
	arguments [6]uint64
}

// parseSyscall reads proc_pid_syscall(5): "running", "-1 SP PC" for a thread that is
// blocked but in no system call, or the number, six arguments, SP and PC.
func parseSyscall(text string) (c syscallArguments, ok bool) {
	fields := strings.Fields(text)
	if len(fields) != 9 {
		return c, false
	}
	number, err := strconv.Atoi(fields[0])
	if err != nil || number < 0 {
		return c, false
	}
	c.number = number
	for n := range c.arguments {
		value, err := strconv.ParseUint(strings.TrimPrefix(fields[n+1], "0x"), 16, 64)
		if err != nil {
			return c, false
		}
		c.arguments[n] = value
	}
	return c, true
}

// call is how a system call that waits is named, and what it waits for.
type call struct {
	name string
	read func(r *Reader, pid uint32, arguments [6]uint64) []Resource
}

// calls are those of all architectures; legacyCalls those of this one alone.
var calls = map[int]call{
	unix.SYS_FUTEX: {"futex", func(r *Reader, pid uint32, a [6]uint64) []Resource {
		return []Resource{r.futex(pid, a[0])}
	}},
	unix.SYS_READ:         {"read", reads},
	unix.SYS_READV:        {"readv", reads},
	unix.SYS_PREAD64:      {"pread64", reads},
	unix.SYS_RECVFROM:     {"recvfrom", reads},
	unix.SYS_RECVMSG:      {"recvmsg", reads},
	unix.SYS_RECVMMSG:     {"recvmmsg", reads},
	unix.SYS_ACCEPT:       {"accept", reads},
	unix.SYS_ACCEPT4:      {"accept4", reads},
	unix.SYS_FLOCK:        {"flock", reads},
	unix.SYS_IOCTL:        {"ioctl", reads},
	unix.SYS_WRITE:        {"write", writes},
	unix.SYS_WRITEV:       {"writev", writes},
	unix.SYS_SENDTO:       {"sendto", writes},
	unix.SYS_SENDMSG:      {"sendmsg", writes},
	unix.SYS_CONNECT:      {"connect", writes},
	unix.SYS_FSYNC:        {"fsync", writes},
	unix.SYS_EPOLL_PWAIT:  {"epoll_pwait", epolls},
	unix.SYS_EPOLL_PWAIT2: {"epoll_pwait2", epolls},
	unix.SYS_PPOLL: {"ppoll", func(r *Reader, pid uint32, a [6]uint64) []Resource {
		return r.pollSet(pid, a[0], a[1])
	}},
	unix.SYS_PSELECT6: {"pselect6", func(r *Reader, pid uint32, a [6]uint64) []Resource {
		return r.selectSet(pid, a[0], a[1], a[2])
	}},
	unix.SYS_NANOSLEEP:       {"nanosleep", sleeps},
	unix.SYS_CLOCK_NANOSLEEP: {"clock_nanosleep", sleeps},
	unix.SYS_WAIT4: {"wait4", func(r *Reader, pid uint32, a [6]uint64) []Resource {
		return r.children(pid, int32(a[0]))
	}},
	unix.SYS_WAITID: {"waitid", func(r *Reader, pid uint32, a [6]uint64) []Resource {
		child := int32(0)
		if a[0] == unix.P_PID {
			child = int32(a[1])
		}
		return r.children(pid, child)
	}},
}

// limits are system calls that end by themselves after a time, depending on their arguments; legacyLimits are those of this
// architecture alone. A time that is given by its address is at 0 if there is none.
var limits = map[int]func(a [6]uint64) bool{
	unix.SYS_FUTEX:        func(a [6]uint64) bool { return futexWaits[a[1]&^(futexPrivate|futexRealtime)] && a[3] != 0 },
	unix.SYS_EPOLL_PWAIT:  func(a [6]uint64) bool { return int32(a[3]) >= 0 },
	unix.SYS_EPOLL_PWAIT2: func(a [6]uint64) bool { return a[3] != 0 },
	unix.SYS_PPOLL:        func(a [6]uint64) bool { return a[2] != 0 },
	unix.SYS_PSELECT6:     func(a [6]uint64) bool { return a[4] != 0 },
	unix.SYS_RECVMMSG:     func(a [6]uint64) bool { return a[4] != 0 },
}

// Of the operations of futex(2), in linux/futex.h: FUTEX_WAIT, FUTEX_LOCK_PI, FUTEX_WAIT_BITSET, FUTEX_WAIT_REQUEUE_PI and
// FUTEX_LOCK_PI2, and the flags that they can have.
var futexWaits = map[uint64]bool{0: true, 6: true, 9: true, 11: true, 13: true}

const futexPrivate, futexRealtime = 128, 256

// isTimed reports whether it ends by itself after a time.
func (c syscallArguments) isTimed() bool {
	limit := limits[c.number]
	if limit == nil {
		limit = legacyLimits[c.number]
	}
	return limit != nil && limit(c.arguments)
}

func callOf(number int) (call, bool) {
	c, ok := calls[number]
	if !ok {
		c, ok = legacyCalls[number]
	}
	return c, ok
}

func reads(r *Reader, pid uint32, a [6]uint64) []Resource {
	return []Resource{r.descriptor(pid, a[0], false)}
}

func writes(r *Reader, pid uint32, a [6]uint64) []Resource {
	return []Resource{r.descriptor(pid, a[0], true)}
}

func epolls(r *Reader, pid uint32, a [6]uint64) []Resource { return r.epollSet(pid, a[0]) }

func sleeps(*Reader, uint32, [6]uint64) []Resource {
	return []Resource{{Kind: Timer, Name: "a timer"}}
}

// children are those that a process waits for: one, or all of its children. Their ids are in
// the process's own PID namespace only if that is the reader's.
func (r *Reader) children(pid uint32, child int32) (all []Resource) {
	for _, p := range r.load().children[pid] {
		r.take(pid, pidCost)
		if child > 0 && p.inner != uint32(child) {
			continue
		}
		if len(all) == maxDescriptors-1 {
			return append(all, Resource{Kind: Child, Name: "a child"}) // there are more
		}
		all = append(all, Resource{Kind: Child, ID: fmt.Sprintf("child:%d", p.pid), Name: "a child"})
	}
	if len(all) == 0 {
		return []Resource{{Kind: Child, Name: "a child"}}
	}
	return all
}

// readBounded reads the begin of a file.
func readBounded(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxFile))
}
