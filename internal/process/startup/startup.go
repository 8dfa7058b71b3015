// SPDX-License-Identifier: Apache-2.0

// Package startup reads what a process was started with: its arguments and its environment.
//
// Both are in the memory of the process. It may change them and make them as long as its address space (prctl(2),
// PR_SET_MM_MAP, needs no capability), and reading them waits for a lock that a process that hangs in a driver may
// never release. What is read, and for how long, is bounded.
package startup

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
)

// MaxBytes is more than the arguments, or the environment, of programs have.
const MaxBytes = 1 << 20

// guard has the threads that wait.
var guard procmaps.Guard

// Environment is NAME=VALUE entries, each with a zero at its end.
type Environment []byte

// ReadEnvironment reads the first bytes of that of a process below procfs, such as /proc. The error is procmaps.ErrHangs
// if the process hangs.
func ReadEnvironment(procfs string, pid uint32, most int) (Environment, error) {
	return ReadEnvironmentOf(procfs, pid, procmaps.TenantOf(procfs, pid), most)
}

// ReadEnvironmentOf is ReadEnvironment of a process whose tenant is known.
func ReadEnvironmentOf(procfs string, pid uint32, tenant procmaps.Tenant, most int) (Environment, error) {
	b, err := read(procfs, pid, tenant, "environ", most)
	if err != nil {
		return nil, fmt.Errorf("read the environment of process %d: %w", pid, err)
	}
	return b, nil
}

// Values are those of a variable, in order: programs differ in which one counts.
func (e Environment) Values(name string) (values []string) {
	for entry := range bytes.SplitSeq(e, []byte{0}) {
		if value, ok := bytes.CutPrefix(entry, []byte(name+"=")); ok {
			values = append(values, string(value))
		}
	}
	return values
}

// Last is the last value of a variable, which is the one that the dynamic linker uses; "" if it has none.
func (e Environment) Last(name string) string {
	values := e.Values(name)
	if len(values) == 0 {
		return ""
	}
	return values[len(values)-1]
}

// CommandLine is the arguments of a process, joined by spaces, or the title that it has set: the first bytes. It is
// empty if the process has none, has ended or hangs. The process chooses what is in it.
func CommandLine(procfs string, pid uint32, most int) string {
	b, err := read(procfs, pid, procmaps.TenantOf(procfs, pid), "cmdline", most)
	if err != nil {
		return ""
	}
	return Joined(b)
}

// Joined is CommandLine for the content of the file cmdline. A title ends at the first zero, or is padded with
// them; each argument ends with one.
func Joined(cmdline []byte) string {
	return string(bytes.TrimRight(bytes.ReplaceAll(cmdline, []byte{0}, []byte{' '}), " "))
}

// read reads a file of a process, at most so many bytes.
func read(procfs string, pid uint32, tenant procmaps.Tenant, name string, most int) (b []byte, err error) {
	process := strconv.FormatUint(uint64(pid), 10)
	type result struct {
		content []byte
		err     error
	}
	done := make(chan result, 1)
	if err := guard.Run(tenant, process, func() {
		f, err := os.Open(filepath.Join(procfs, process, name))
		if err != nil {
			done <- result{err: err}
			return
		}
		defer f.Close()
		content, err := io.ReadAll(io.LimitReader(f, int64(most)))
		done <- result{content, err}
	}); err != nil {
		return nil, err
	}
	r := <-done
	return r.content, r.err
}
