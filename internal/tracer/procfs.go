// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
)

// proc is the path of a file of a process.
func (t *Tracer) proc(pid uint32, name string) string {
	return filepath.Join(t.cfg.ProcFS, strconv.FormatUint(uint64(pid), 10), name)
}

// pids lists the processes that exist.
func (t *Tracer) pids() (map[uint32]bool, error) {
	d, err := os.Open(t.cfg.ProcFS)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	out := make(map[uint32]bool, len(names))
	for _, name := range names {
		if pid, err := strconv.ParseUint(name, 10, 32); err == nil {
			out[uint32(pid)] = true
		}
	}
	return out, nil
}

func (t *Tracer) comm(pid uint32) string {
	var room [64]byte
	b, _ := procmaps.ReadSmall(t.proc(pid, "comm"), room[:])
	return strings.ToValidUTF8(string(bytes.TrimSuffix(b, []byte("\n"))), "?")
}

// rootKey is the root directory of a process, in which its paths are.
type rootKey struct{ dev, ino uint64 }

func (t *Tracer) rootOf(pid uint32) rootKey {
	var st unix.Statx_t
	// A file system of the network, or of a program, is not asked.
	_ = unix.Statx(unix.AT_FDCWD, t.proc(pid, "root"), unix.AT_STATX_DONT_SYNC, unix.STATX_INO, &st)
	return rootKey{unix.Mkdev(st.Dev_major, st.Dev_minor), st.Ino}
}

func (t *Tracer) tenantOf(pid uint32) procmaps.Tenant { return procmaps.TenantOf(t.cfg.ProcFS, pid) }

func (t *Tracer) parent(pid uint32) uint32 { return procmaps.Parent(t.cfg.ProcFS, pid) }

func monotonic() uint64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return uint64(ts.Nano())
}
