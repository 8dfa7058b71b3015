// SPDX-License-Identifier: Apache-2.0

package pystack

import "golang.org/x/sys/unix"

// sysPoll is the system call of poll(3).
const sysPoll = unix.SYS_POLL
