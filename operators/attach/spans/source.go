// SPDX-License-Identifier: Apache-2.0

package spans

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/gpu-gadgets/gpu-gadgets/internal/elf/module"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
)

// Variable is the thread-local variable by which a process publishes its context:
// OpenTelemetry's OTEP 4947, "Thread Context". The name has the version.
const Variable = "otel_thread_ctx_v1"

// Source is struct span_source of bpf/process/span.h: where one process has the variable.
type Source struct {
	StartStack uint64
	At         uint64
	Offset     uint64
	Access     uint32
	// Keys are the numbers of the attributes that are to be read, noKey for none.
	Keys [4]uint8
}

// noKeys: no attribute is read.
var noKeys = [4]uint8{noKey, noKey, noKey, noKey}

// enum tls_access of bpf/process/tls.h.
var accesses = map[module.Access]uint32{
	module.AccessStatic: 1, module.AccessOffset: 2, module.AccessIndex: 3, module.AccessDescriptor: 4,
}

// errCLibrary: the tables of thread-local variables are not glibc's.
var errCLibrary = errors.New("the process runs on musl, whose thread-local variables of libraries are not known here")

// file has the facts about the variable in an executable or a library.
type file struct {
	identity string         // procmaps.File.Identity
	module   *module.Module // nil: none that defines it
	found    module.ThreadLocal
	err      error // it defines it, and cannot be used
	hangs    bool  // its file system did not answer
}

// parse reads one file. A file that is no ELF file, or is malformed before it comes to
// the variable, defines none.
func parse(f *procmaps.File) *file {
	out := &file{identity: f.Identity()}
	m, err := module.Open(f, f.Size())
	if err == nil {
		if out.found, err = m.ThreadLocal(Variable); err == nil {
			out.module = m
		}
	}
	if errors.Is(err, module.ErrNoAccess) {
		out.err = err
	}
	out.hangs = errors.Is(err, procmaps.ErrHangs)
	return out
}

// source places what a file says in the process that has mapped it as m.
func (f *file) source(m procmaps.Mapping, startStack uint64) (Source, error) {
	bias, ok := f.module.Bias(m.Start, m.Offset)
	if !ok {
		return Source{}, fmt.Errorf("%w: no segment is mapped at offset %#x", module.ErrMalformed, m.Offset)
	}
	s := Source{StartStack: startStack, At: f.found.Address, Offset: f.found.Offset, Access: accesses[f.found.Access], Keys: noKeys}
	if f.found.Access != module.AccessStatic {
		s.At += bias
	}
	return s, nil
}

// isMusl: a mapping is musl's dynamic linker, which is its C library, too.
func isMusl(m procmaps.Mapping) bool { return strings.HasPrefix(path.Base(m.Path), "ld-musl-") }

// startStack reads field 28 of /proc/PID/stat, the address of the first thread's
// stack: random, and new with each exec. The kernel shows 0 to who may not know, and
// of what has no memory.
func startStack(procfs string, pid uint32) uint64 {
	b, err := os.ReadFile(filepath.Join(procfs, strconv.FormatUint(uint64(pid), 10), "stat"))
	if err != nil {
		return 0
	}
	fields := procmaps.StatFields(b)
	if len(fields) <= 28-3 {
		return 0
	}
	n, _ := strconv.ParseUint(string(fields[28-3]), 10, 64)
	return n
}
