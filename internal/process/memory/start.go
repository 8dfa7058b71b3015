// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"bytes"
	"fmt"
	"regexp"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
)

// MaxBytes is more than the arguments, or the environment, of programs have.
const MaxBytes = 1 << 20

// Environment is NAME=VALUE entries, each with a zero at its end.
type Environment []byte

// ReadEnvironment reads the first bytes of that of a process below procfs, such as /proc. The error is procmaps.ErrHangs
// if the process hangs.
func ReadEnvironment(procfs string, pid uint32, most int) (Environment, error) {
	return ReadEnvironmentOf(procfs, pid, procmaps.TenantOf(procfs, pid), most)
}

// ReadEnvironmentOf is ReadEnvironment of a process whose tenant is known.
func ReadEnvironmentOf(procfs string, pid uint32, tenant procmaps.Tenant, most int) (Environment, error) {
	b, err := readFile(process{procfs, pid, tenant}, "environ", most)
	if err != nil {
		return nil, fmt.Errorf("read the environment of process %d: %w", pid, err)
	}
	return b, nil
}

// maxAncestors bounds how far up an environment is searched for: a launcher starts servers, and those workers.
const maxAncestors = 8

// ReadInherited is ReadEnvironment, or, of a process that has overwritten its environment, that of the nearest ancestor
// of the same tenant that has not: what the process was given, except what was set for it alone. A process that sets a
// title, as workers of Ray and vLLM do, overwrites arguments and environment with it, and fills the rest with zeros.
func ReadInherited(procfs string, pid uint32, most int) (Environment, error) {
	tenant := procmaps.TenantOf(procfs, pid)
	own, err := ReadEnvironmentOf(procfs, pid, tenant, most)
	if err != nil || !own.isOverwritten() {
		return own, err
	}
	for range maxAncestors {
		pid = procmaps.Parent(procfs, pid)
		if pid == 0 || procmaps.TenantOf(procfs, pid) != tenant {
			break
		}
		inherited, err := ReadEnvironmentOf(procfs, pid, tenant, most)
		if err != nil {
			break
		}
		if !inherited.isOverwritten() {
			return inherited, nil
		}
	}
	return own, nil
}

// entryStart begins an entry of an environment.
var entryStart = regexp.MustCompile(`(^|\x00)[A-Za-z_][A-Za-z0-9_]*=`)

// isOverwritten reports whether there is something, but no variable. A program that was started without variables has nothing.
func (e Environment) isOverwritten() bool { return len(e) > 0 && !entryStart.Match(e) }

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
	b, err := ReadFile(procfs, pid, "cmdline", most)
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
