// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/memory"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
	"github.com/gpu-gadgets/gpu-gadgets/internal/throttle"
)

// clients are the open files of DRM devices on this machine, whose memory the kernel reports in
// /proc/PID/fdinfo (Documentation/gpu/drm-usage-stats.rst). It is the only count of processes that
// do not compute, or of kernels without that of KFD. It is safe for concurrent use.
type clients struct {
	proc string

	mu      sync.Mutex
	scanned time.Time
	files   []clientFile // by pid
	spent   throttle.Allowances[procmaps.Tenant]
}

func newClients(proc string) *clients {
	return &clients{proc: proc, spent: throttle.Allowances[procmaps.Tenant]{Burst: fdsBurst, Share: fdsShare}}
}

// clientFile is a descriptor that led to a DRM device when it was listed. It may lead to any file when it is read.
type clientFile struct {
	pid    uint32
	tenant procmaps.Tenant
	fd     string
}

const (
	// rescan is how long a list of open files serves: to make one costs a readlink for each open
	// file of each process.
	rescan = 30 * time.Second
	// A process has a few files of a GPU; the limits bound what one may cost. A tenant may have a quarter of them.
	maxFDs, maxClients = 4096, 16384
	// fdCost is the time for one open file of any kind. What a tenant's cost is bounded: its further processes are left out.
	fdCost             = time.Microsecond
	fdsBurst, fdsShare = time.Second, 50
	drmFiles           = "/dev/dri/"
)

// client is an open file of a GPU: others with its id are the same one, duplicated or inherited.
type client struct {
	pdev, id string
	vram     int64 // bytes
}

// parseClient reads an fdinfo. False: it is not of an AMD GPU, or has no count of its memory.
func parseClient(text string) (c client, ok bool) {
	isAMD := false
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch key {
		case "drm-driver":
			isAMD = value == "amdgpu"
		case "drm-pdev":
			c.pdev = value
		case "drm-client-id":
			c.id = value
		case "drm-memory-vram", "drm-resident-vram": // the second since Linux 6.12; they are the same
			if n, known := drmBytes(value); known {
				c.vram, ok = n, true
			}
		}
	}
	return c, ok && isAMD && c.pdev != ""
}

// drmBytes reads a size, such as "1234 KiB"; without a unit it is in bytes.
func drmBytes(text string) (int64, bool) {
	digits, unit, _ := strings.Cut(text, " ")
	shift, known := map[string]uint{"": 0, "KiB": 10, "MiB": 20}[strings.TrimSpace(unit)]
	n, err := strconv.ParseUint(digits, 10, 63)
	if err != nil || !known || n > math.MaxInt64>>shift {
		return 0, false
	}
	return int64(n) << shift, true
}

// list returns the open files of DRM devices.
func (c *clients) list() []clientFile {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.scanned.IsZero() && time.Since(c.scanned) < rescan {
		return c.files
	}
	c.scanned, c.files = time.Now(), nil
	entries, _ := os.ReadDir(c.proc)
	var pids []uint32
	for _, e := range entries {
		if pid, err := strconv.ParseUint(e.Name(), 10, 31); err == nil {
			pids = append(pids, uint32(pid))
		}
	}
	slices.Sort(pids) // a client that was inherited is its parent's
	its := map[procmaps.Tenant]int{}
	for _, pid := range pids {
		tenant := procmaps.TenantOf(c.proc, pid)
		if c.spent.Pause(tenant, c.scanned) > 0 {
			continue
		}
		names, all := fdsOf(ProcFS(c.proc).file(pid, "fd"))
		c.spent.Take(tenant, time.Duration(all)*fdCost, c.scanned)
		for _, name := range names {
			if len(c.files) == maxClients {
				return c.files
			}
			if its[tenant]++; its[tenant] > maxClients/4 {
				break
			}
			c.files = append(c.files, clientFile{pid, tenant, name})
		}
	}
	c.spent.ForgetPaid(c.scanned)
	return c.files
}

// fdsOf are the names of a process's open files that are DRM devices, and of how many files.
func fdsOf(dir string) (names []string, files int) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, 0 // ended
	}
	defer d.Close()
	all, _ := d.Readdirnames(maxFDs)
	for _, name := range all {
		if target, err := os.Readlink(filepath.Join(dir, name)); err == nil && strings.HasPrefix(target, drmFiles) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, len(all)
}

// memory returns the bytes of each process on each GPU, by the GPU's address on the bus.
func (c *clients) memory() map[string]map[uint32]int64 {
	sums, seen := map[string]map[uint32]int64{}, map[client]bool{}
	for _, file := range c.list() {
		text, err := memory.ReadFileOf(c.proc, file.pid, file.tenant, filepath.Join("fdinfo", file.fd), maxSysFile)
		if err != nil {
			continue // it has ended, was closed or hangs
		}
		client, ok := parseClient(string(text))
		if !ok {
			continue
		}
		bytes := client.vram
		client.vram = 0
		if seen[client] && client.id != "" {
			continue
		}
		seen[client] = true
		if sums[client.pdev] == nil {
			sums[client.pdev] = map[uint32]int64{}
		}
		if sum := sums[client.pdev][file.pid]; sum <= math.MaxInt64-bytes {
			sums[client.pdev][file.pid] = sum + bytes
		}
	}
	return sums
}
