// SPDX-License-Identifier: Apache-2.0

package procmaps

import (
	"bytes"
	"hash/maphash"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Tenant stands for whom a process belongs to, as bpf/process/quota.h has it: a cgroup of version 2, which a
// container has for itself, or, where processes are in none, a mount namespace. It is not the root directory or
// another namespace, which a process may change. 0: the process is gone.
type Tenant uint64

// tenantSeed keeps tenants from choosing names with the hash of others'.
var tenantSeed = maphash.MakeSeed()

// TenantOf reads the cgroup of a process in procfs.
func TenantOf(procfs string, pid uint32) Tenant {
	room := smallRoom.Get().(*[smallBytes]byte)
	defer smallRoom.Put(room)
	b, _ := ReadSmall(procfs+"/"+strconv.FormatUint(uint64(pid), 10)+"/cgroup", room[:])
	for line := range bytes.Lines(b) {
		// Hierarchy 0 is version 2; in its root are those that were not moved.
		path, ok := bytes.CutPrefix(line, []byte("0::"))
		if ok && string(bytes.TrimSuffix(path, []byte("\n"))) != "/" {
			return Tenant(maphash.Bytes(tenantSeed, path))
		}
	}
	return Tenant(MountNS(procfs, pid))
}

// smallBytes is room for proc_pid_stat(5), and for the cgroups of version 1 and one of version 2; of a longer one the
// name is cut.
const smallBytes = 8 << 10

var smallRoom = sync.Pool{New: func() any { return new([smallBytes]byte) }}

// ReadSmall reads a file of procfs into b, as much as fits, with few system calls: this runs for each program that
// starts, and os.ReadFile makes twice as many.
func ReadSmall(path string, b []byte) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	n := 0
	for n < len(b) {
		more, err := unix.Read(fd, b[n:])
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return b[:n], err
		}
		if more == 0 {
			break
		}
		n += more
	}
	return b[:n], nil
}

// Tenant is whom a process belongs to; of one whose mappings are known, also after its end, it is not read again.
func (c *Cache) Tenant(pid uint32) Tenant {
	c.renew(pid, c.cfg.MinRefresh)
	return c.tenant(pid)
}

// tenantNow is Tenant of the process that has a pid now, if there is one.
func (c *Cache) tenantNow(pid uint32) Tenant {
	c.renew(pid, 0)
	return c.tenant(pid)
}

func (c *Cache) tenant(pid uint32) Tenant {
	c.mu.Lock()
	e := c.byPID[pid]
	c.mu.Unlock()
	if e != nil {
		return e.tenant
	}
	return TenantOf(c.cfg.ProcFS, pid)
}

// MountNS returns the number of a process's mount namespace; 0: the process is gone.
func MountNS(procfs string, pid uint32) uint64 {
	s, _ := os.Readlink(filepath.Join(procfs, strconv.FormatUint(uint64(pid), 10), "ns/mnt")) // mnt:[4026531841]
	n, _ := strconv.ParseUint(strings.TrimSuffix(strings.TrimPrefix(s, "mnt:["), "]"), 10, 64)
	return n
}
