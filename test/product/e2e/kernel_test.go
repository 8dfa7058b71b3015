// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/stretchr/testify/require"
)

// objects are eBPF programs, maps and links of the kernel, and pins, as
// "prog 12", "map 7", "link 3" and "pin /sys/fs/bpf/x".
type objects map[string]bool

// kernelObjects lists all that exist.
func kernelObjects(t *testing.T) objects {
	t.Helper()
	all := objects{}
	ids := func(kind string, next func(uint32) (uint32, error)) {
		id := uint32(0)
		for {
			var err error
			if id, err = next(id); errors.Is(err, os.ErrNotExist) {
				return
			}
			require.NoError(t, err, "list "+kind)
			all[fmt.Sprint(kind, " ", id)] = true
		}
	}
	ids("prog", func(id uint32) (uint32, error) {
		next, err := ebpf.ProgramGetNextID(ebpf.ProgramID(id))
		return uint32(next), err
	})
	ids("map", func(id uint32) (uint32, error) {
		next, err := ebpf.MapGetNextID(ebpf.MapID(id))
		return uint32(next), err
	})
	links := new(link.Iterator)
	for links.Next() {
		all[fmt.Sprint("link ", links.ID)] = true
	}
	require.NoError(t, links.Err())
	links.Close()
	_ = filepath.WalkDir("/sys/fs/bpf", func(path string, _ fs.DirEntry, err error) error {
		if err == nil {
			all["pin "+path] = true
		}
		return nil // it may have been removed already
	})
	return all
}

var descriptor = regexp.MustCompile(`(?m)^(prog|map|link)_id:\s*(\d+)$`)

// heldBy lists the objects for which a process has a descriptor, and the maps of
// its programs.
func heldBy(pid string) objects {
	held := objects{}
	infos, _ := filepath.Glob("/proc/" + pid + "/fdinfo/*")
	for _, info := range infos {
		text, err := os.ReadFile(info)
		if err != nil {
			continue
		}
		for _, m := range descriptor.FindAllSubmatch(text, -1) {
			held[string(m[1])+" "+string(m[2])] = true
		}
	}
	for name := range held {
		var id uint32
		if n, _ := fmt.Sscanf(name, "prog %d", &id); n != 1 {
			continue
		}
		if program, err := ebpf.NewProgramFromID(ebpf.ProgramID(id)); err == nil {
			if info, err := program.Info(); err == nil {
				maps, _ := info.MapIDs()
				for _, id := range maps {
					held[fmt.Sprint("map ", id)] = true
				}
			}
			program.Close()
		}
	}
	return held
}

// requireNothingNew waits until there are no objects that did not exist before; the
// kernel frees objects a moment after their last user. Objects that another process of
// this machine has opened meanwhile are ignored.
func requireNothingNew(t *testing.T, before objects) {
	t.Helper()
	var left []string
	defer func() {
		if t.Failed() {
			t.Logf("left, or of other processes: %v", left)
		}
	}()
	eventually(t, "eBPF objects are left behind", func() bool {
		left = nil
		for name := range kernelObjects(t) {
			if !before[name] {
				left = append(left, name)
			}
		}
		if len(left) == 0 {
			return true
		}
		pids, _ := filepath.Glob("/proc/[0-9]*")
		others := objects{}
		for _, pid := range pids {
			for name := range heldBy(filepath.Base(pid)) {
				others[name] = true
			}
		}
		for _, name := range left {
			if !others[name] {
				return false
			}
		}
		return true
	})
}

// requireGone waits until none of the objects exists.
func requireGone(t *testing.T, gone objects) {
	t.Helper()
	eventually(t, "objects of a process that ended", func() bool {
		now := kernelObjects(t)
		for name := range gone {
			if now[name] {
				return false
			}
		}
		return true
	})
}

// requireNotPatched waits until no probe is left in the process's memory. On a shared
// machine another tracer may have probes there; while it has, this cannot be checked.
func requireNotPatched(t *testing.T, pid int) {
	t.Helper()
	var tracer string
	eventually(t, "probes are left in the memory of the workload", func() bool {
		if !isPatched(t, pid) {
			return true
		}
		infos, _ := filepath.Glob("/proc/[0-9]*/fdinfo/*")
		for _, info := range infos {
			text, _ := os.ReadFile(info)
			if bytes.Contains(text, []byte("link_type:\tuprobe_multi")) {
				tracer = info
			}
		}
		return tracer != ""
	})
	if tracer != "" {
		t.Logf("another process traces this one: %s", tracer)
	}
}

// isPatched compares the code of the driver in a process's memory with the file:
// a uprobe is a breakpoint in that memory.
func isPatched(t *testing.T, pid int) bool {
	t.Helper()
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	require.NoError(t, err)
	memory, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	require.NoError(t, err)
	defer memory.Close()
	for line := range strings.Lines(string(maps)) {
		var begin, end, offset int64
		var perms string
		if n, _ := fmt.Sscanf(line, "%x-%x %s %x", &begin, &end, &perms, &offset); n != 4 ||
			!strings.Contains(perms, "x") || !strings.Contains(line, "libcuda.so.1") {
			continue
		}
		file, err := os.ReadFile(strings.Fields(line)[5])
		require.NoError(t, err)
		code := make([]byte, min(end-begin, int64(len(file))-offset))
		_, err = memory.ReadAt(code, begin)
		require.NoError(t, err)
		return !bytes.Equal(code, file[offset:offset+int64(len(code))])
	}
	require.Fail(t, "the process has no driver")
	return false
}
