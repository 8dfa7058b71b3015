// SPDX-License-Identifier: Apache-2.0

package pystack

import "golang.org/x/sys/unix"

// sysPoll is what poll(3) calls.
const sysPoll = unix.SYS_PPOLL
