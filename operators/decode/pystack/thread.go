// SPDX-License-Identifier: Apache-2.0

package pystack

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/utils/syscalls"
)

// Record mirrors struct thread_record of gadgets/py_stack/program.bpf.c: one
// thread as the iterator writes it. A test compares it with the object's BTF.
type Record struct {
	Process, StackID, MountNS uint64
	PID, TID                  uint32
	State                     uint32
	GIL                       uint32
	Syscall                   int32
	Flags                     uint32
	Version                   uint32
	Moved                     uint32
	Comm, ProcessComm         [16]byte
	Wchan                     [32]byte
}

const recordSize = 3*8 + 8*4 + 2*16 + 32

// enum thread_state and enum python_gil.
const (
	running  = 1
	runnable = 2
	blocked  = 4
	stopped  = 5

	gilHeld    = 1
	gilNotHeld = 2
	gilWaited  = 3
)

// thread is one thread of a dump.
type thread struct {
	Record
	comm, processComm string
	// wchan is the kernel function in which it sleeps, "" if none.
	wchan string
	// role says what it does, empty if that is unknown: role.go.
	role string
}

// Decode reads the output of the iterator.
func Decode(b []byte) ([]Record, error) {
	if len(b)%recordSize != 0 {
		return nil, fmt.Errorf("decode threads: %d bytes are no rows of %d", len(b), recordSize)
	}
	records := make([]Record, len(b)/recordSize)
	if _, err := binary.Decode(b, binary.NativeEndian, records); err != nil {
		return nil, fmt.Errorf("decode threads: %w", err)
	}
	return records, nil
}

// toThreads sorts by process and thread.
func toThreads(records []Record) []thread {
	threads := make([]thread, len(records))
	for n, r := range records {
		// Parts that a compiler has split off have the function's name and a suffix.
		wchan, _, _ := strings.Cut(text(r.Wchan[:]), ".")
		threads[n] = thread{Record: r, comm: text(r.Comm[:]), processComm: text(r.ProcessComm[:]), wchan: wchan}
	}
	slices.SortFunc(threads, func(a, b thread) int {
		if a.PID != b.PID {
			return int(a.PID) - int(b.PID)
		}
		return int(a.TID) - int(b.TID)
	})
	return threads
}

func text(b []byte) string {
	b, _, _ = bytes.Cut(b, []byte{0})
	return strings.ToValidUTF8(string(b), "?")
}

// state is running, runnable, sleeping, blocked (signals do not wake it) or stopped.
func (t *thread) state() string {
	switch t.State {
	case running:
		return "running"
	case runnable:
		return "runnable"
	case blocked:
		return "blocked"
	case stopped:
		return "stopped"
	}
	return "sleeping"
}

// syscall returns the name of the system call in which it sleeps, "" if none.
func (t *thread) syscall() string {
	if t.Syscall < 0 {
		return ""
	}
	name, ok := syscalls.GetSyscallNameByNumber(int(t.Syscall))
	if !ok {
		return fmt.Sprintf("syscall %d", t.Syscall)
	}
	return name
}

// gil is held, waiting, not held or unknown.
func (t *thread) gil() string {
	switch t.GIL {
	case gilHeld:
		return "held"
	case gilWaited:
		return "waiting"
	case gilNotHeld:
		return "not held"
	}
	return "unknown"
}

// version is that of the interpreter; below 3.11 only its first two numbers.
func (t *thread) version() string {
	major, minor, micro := t.Version>>24, t.Version>>16&0xff, t.Version>>8&0xff
	if minor < 11 {
		return fmt.Sprintf("%d.%d", major, minor)
	}
	return fmt.Sprintf("%d.%d.%d", major, minor, micro)
}
