// SPDX-License-Identifier: Apache-2.0

package procmaps

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"strconv"

	"golang.org/x/sys/unix"
)

// StartTime reads when a process started, in clock ticks since boot. The error
// is ErrGone for a process that does not exist.
func StartTime(procfs string, pid uint32) (uint64, error) {
	room := smallRoom.Get().(*[smallBytes]byte)
	defer smallRoom.Put(room)
	b, err := ReadSmall(procfs+"/"+strconv.FormatUint(uint64(pid), 10)+"/stat", room[:])
	if err != nil {
		return 0, procError(pid, err)
	}
	if f := StatFields(b); len(f) > 22-3 {
		if v, err := strconv.ParseUint(string(f[22-3]), 10, 64); err == nil {
			return v, nil
		}
	}
	return 0, fmt.Errorf("read start time of process %d: malformed stat", pid)
}

func procError(pid uint32, err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("process %d: %w", pid, ErrGone)
	}
	return fmt.Errorf("process %d: %w", pid, err)
}

// StatFields are the fields of proc_pid_stat(5) from the third, the state, on; none if the text is
// malformed. The second field is the command in brackets, which may hold anything, so the fields
// are counted from the last bracket.
func StatFields(stat []byte) [][]byte {
	_, rest, _ := bytes.Cut(stat, []byte(" ("))
	i := bytes.LastIndex(rest, []byte(") "))
	if i < 0 {
		return nil
	}
	return bytes.Fields(rest[i+2:])
}
