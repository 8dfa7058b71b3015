// SPDX-License-Identifier: Apache-2.0

package waits

import "golang.org/x/sys/unix"

// legacyCalls are system calls that only x86-64 has.
var legacyCalls = map[int]call{
	unix.SYS_EPOLL_WAIT: {"epoll_wait", epolls},
	unix.SYS_POLL: {"poll", func(r *Reader, pid uint32, a [6]uint64) []Resource {
		return r.pollSet(pid, a[0], a[1])
	}},
	unix.SYS_SELECT: {"select", func(r *Reader, pid uint32, a [6]uint64) []Resource {
		return r.selectSet(pid, a[0], a[1], a[2])
	}},
	unix.SYS_PAUSE: {"pause", sleeps},
}

// legacyLimits are those of them that end after a time.
var legacyLimits = map[int]func(a [6]uint64) bool{
	unix.SYS_EPOLL_WAIT: func(a [6]uint64) bool { return int32(a[3]) >= 0 },
	unix.SYS_POLL:       func(a [6]uint64) bool { return int32(a[2]) >= 0 },
	unix.SYS_SELECT:     func(a [6]uint64) bool { return a[4] != 0 },
}
