// SPDX-License-Identifier: Apache-2.0

package procmaps

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// StartTime reads when a process started, in clock ticks since boot. The error
// is ErrGone for a process that does not exist.
func StartTime(procfs string, pid uint32) (uint64, error) {
	room := smallRoom.Get().(*[smallBytes]byte)
	defer smallRoom.Put(room)
	fields, err := readStat(procfs, pid, room)
	if err != nil {
		return 0, procError(pid, err)
	}
	if start, ok := startOf(fields); ok {
		return start, nil
	}
	return 0, fmt.Errorf("read start time of process %d: malformed stat", pid)
}

// readStat returns StatFields of a process, which are in room.
func readStat(procfs string, pid uint32, room *[smallBytes]byte) ([][]byte, error) {
	b, err := ReadSmall(procfs+"/"+strconv.FormatUint(uint64(pid), 10)+"/stat", room[:])
	if err != nil {
		return nil, err
	}
	return StatFields(b), nil
}

// startOf is field 22 of proc_pid_stat(5).
func startOf(fields [][]byte) (uint64, bool) {
	if len(fields) <= 22-3 {
		return 0, false
	}
	start, err := strconv.ParseUint(string(fields[22-3]), 10, 64)
	return start, err == nil
}

// Parent is the parent of a process, field 4 of proc_pid_stat(5); 0 where it has none, or has ended.
func Parent(procfs string, pid uint32) uint32 {
	room := smallRoom.Get().(*[smallBytes]byte)
	defer smallRoom.Put(room)
	fields, err := readStat(procfs, pid, room)
	if err != nil || len(fields) < 2 {
		return 0
	}
	parent, _ := strconv.ParseUint(string(fields[1]), 10, 32)
	return uint32(parent)
}

// HasEnded reports whether there is no process any more that has this id and started then, as StartTime has it (0: not
// known). One that its parent has not waited for has ended, too. One whose main thread alone has ended has not, nor one
// that could not be read.
func HasEnded(procfs string, pid uint32, start uint64) bool {
	dir := procfs + "/" + strconv.FormatUint(uint64(pid), 10)
	room := smallRoom.Get().(*[smallBytes]byte)
	defer smallRoom.Put(room)
	fields, err := readStat(procfs, pid, room)
	if err != nil || len(fields) <= 22-3 {
		_, err = os.Stat(dir)
		return errors.Is(err, fs.ErrNotExist)
	}
	if now, ok := startOf(fields); start > 0 && ok && now != start {
		return true
	}
	if !isDead(fields) {
		return false
	}
	threads, err := os.ReadDir(dir + "/task")
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	if len(threads) > 1 {
		return false
	}
	// A thread that calls execve(2) takes the place of the first: the one that is left may be it.
	if fields, err = readStat(procfs, pid, room); err != nil {
		return true
	}
	return len(fields) > 0 && isDead(fields)
}

// isDead reports whether the first thread of a process has ended, by field 3 of proc_pid_stat(5).
func isDead(fields [][]byte) bool { return fields[0][0] == 'Z' || fields[0][0] == 'X' }

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
