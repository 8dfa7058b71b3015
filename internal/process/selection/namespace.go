// SPDX-License-Identifier: Apache-2.0

package selection

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// ErrNested means that process ids are those of a PID namespace below the machine's first one, as in a container. The
// programs in the kernel know processes by their ids in the first one, so a selection would match none of them, or others.
var ErrNested = errors.New("process ids here are those of a container, which the kernel's programs do not know:" +
	" start the container with --pid=host, a pod with hostPID: true (a node of kind, or of minikube with the driver docker, is itself a container)")

// NestedRows is the end of a warning of ErrNested, in a run for which no processes were named.
const NestedRows = "; rows have other ids here, and native code has no names"

// initialPIDNamespace is the inode of the first PID namespace on every machine: PROC_PID_INIT_INO
// (include/linux/proc_ns.h, since Linux 3.8).
const initialPIDNamespace = 0xeffffffc

// CheckNamespace is ErrNested if the ids in procfs are not those that the kernel's programs see. What counts is the
// file system, not the namespace of this program: a container may have the machine's /proc mounted. It is nil where
// the namespace cannot be read.
func CheckNamespace(procfs string) error {
	var at unix.Stat_t
	// Process 1 of a procfs is the first of the namespace that it shows. It may have more rights than we.
	err := unix.Stat(filepath.Join(procfs, "1/ns/pid"), &at)
	if err != nil && SamePIDs(procfs) {
		err = unix.Stat(filepath.Join(procfs, "self/ns/pid"), &at)
	}
	if err != nil {
		return nil
	}
	return checkInode(at.Ino)
}

// SamePIDs reports whether the pids of a procfs are those that the kernel gives
// this process: not so in a container without the host's PID namespace.
func SamePIDs(procfs string) bool {
	self, err := os.Readlink(filepath.Join(procfs, "self"))
	return err == nil && self == strconv.Itoa(os.Getpid())
}

func checkInode(inode uint64) error {
	if inode != initialPIDNamespace {
		return ErrNested
	}
	return nil
}
