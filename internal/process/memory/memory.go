// SPDX-License-Identifier: Apache-2.0

// Package memory reads what processes have in their memory, also the arguments and the environment that they were
// started with.
//
// All of it is the process's to choose. It may make its arguments as long as its address space (prctl(2),
// PR_SET_MM_MAP, needs no capability), keep a page on a file system of its own, whose server does not answer
// (FUSE), or hang with a lock that the read waits for: in a driver, or in an exec that closes a file of such a file
// system. What is read, and for how long, is bounded, for each tenant.
package memory

import (
	"io"
	"os"
	"path/filepath"
	"strconv"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
)

// guard has the threads that wait.
var guard procmaps.Guard

// process is one whose files are read.
type process struct {
	procfs string
	pid    uint32
	tenant procmaps.Tenant
}

func (p process) file(name string) string {
	return filepath.Join(p.procfs, strconv.FormatUint(uint64(p.pid), 10), name)
}

// within returns what fn returns, or procmaps.ErrHangs if that takes too long. fn may then still be running: what it
// changes is its own.
func within[T any](p process, fn func() (T, error)) (T, error) {
	return procmaps.Guarded(&guard, p.tenant, p.file(""), fn)
}

// ReadFile reads the first bytes of a file of a process below procfs, such as syscall, for which the kernel takes a lock of
// the process. The error is procmaps.ErrHangs if the process hangs with it.
func ReadFile(procfs string, pid uint32, name string, most int) ([]byte, error) {
	return ReadFileOf(procfs, pid, procmaps.TenantOf(procfs, pid), name, most)
}

// ReadFileOf is ReadFile of a process whose tenant is known.
func ReadFileOf(procfs string, pid uint32, tenant procmaps.Tenant, name string, most int) ([]byte, error) {
	return readFile(process{procfs, pid, tenant}, name, most)
}

func readFile(p process, name string, most int) ([]byte, error) {
	return within(p, func() ([]byte, error) {
		f, err := os.Open(p.file(name))
		if err != nil {
			return nil, err
		}
		defer f.Close()
		return io.ReadAll(io.LimitReader(f, int64(most)))
	})
}

// Reader reads the memory of one process: of that which had the pid when it was opened.
type Reader struct {
	process
	file *os.File
}

// Open opens the memory of a process below procfs, such as /proc. The caller calls Close.
func Open(procfs string, pid uint32) (*Reader, error) {
	p := process{procfs, pid, procmaps.TenantOf(procfs, pid)}
	file, err := within(p, func() (*os.File, error) { return os.Open(p.file("mem")) })
	if err != nil {
		return nil, err
	}
	return &Reader{p, file}, nil
}

// ReadAt reads at an address, as io.ReaderAt. The error is procmaps.ErrHangs if a page is not there in time.
func (r *Reader) ReadAt(b []byte, at int64) (int, error) {
	return procmaps.GuardedReadAt(&guard, r.tenant, r.process.file(""), r.file, b, at)
}

// Close closes the file, as soon as no read waits for a page.
func (r *Reader) Close() error { return r.file.Close() }
