// SPDX-License-Identifier: Apache-2.0

package subject

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/cilium/ebpf"
)

// Probes returns how many eBPF links a process holds that probe a file with this name.
// Other programs that trace the whole machine have links of their own, which do not
// count. Linux before 6.17 does not show the files of a link, so all links to functions
// of files count there.
func Probes(pid int, name string) int {
	links := 0
	eachProbe(pid, name, func([]byte) { links++ })
	return links
}

// eachProbe calls do with what the kernel says of each of them.
func eachProbe(pid int, name string, do func(info []byte)) {
	infos, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", pid)) // none: the process has ended
	for _, path := range infos {
		info, err := os.ReadFile(path)
		if err == nil && isProbe(info, name) {
			do(info)
		}
	}
}

// isProbe reports whether a descriptor's information is that of a link to functions of
// the file: fs/proc/fd.c, and bpf_uprobe_multi_show_fdinfo of kernel/trace/bpf_trace.c.
func isProbe(info []byte, name string) bool {
	isLink, hasPath := false, false
	for lines := bufio.NewScanner(bytes.NewReader(info)); lines.Scan(); {
		key, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimSpace(value)
		switch key {
		case "link_type":
			isLink = strings.HasPrefix(value, "uprobe") || strings.HasPrefix(value, "uretprobe") || value == "perf"
		case "path":
			hasPath = true
			if filepath.Base(value) == name {
				return isLink
			}
		}
	}
	return isLink && !hasPath
}

// WaitProbes waits until so many gadgets of a process have probes in a file, and it has added none
// for half a second; false: the context has ended before that.
func WaitProbes(ctx context.Context, pid int, name string, gadgets int) bool {
	const settled = 500 * time.Millisecond
	links, since := 0, time.Now()
	for ; ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
		if n := Probes(pid, name); n != links {
			links, since = n, time.Now()
		} else if links > 0 && time.Since(since) >= settled && gadgetsOf(pid, name) >= gadgets {
			return true
		}
	}
	return false
}

// gadgetsOf returns how many gadgets have links of a process to a file: the programs of each share
// one map of constants.
func gadgetsOf(pid int, name string) int {
	constants := map[ebpf.MapID]bool{}
	eachProbe(pid, name, func(info []byte) {
		_, rest, _ := bytes.Cut(info, []byte("prog_id:"))
		fields := bytes.Fields(rest)
		if len(fields) == 0 {
			return
		}
		id, err := strconv.ParseUint(string(fields[0]), 10, 32)
		if err != nil {
			return
		}
		for _, of := range mapsOf(ebpf.ProgramID(id)) {
			if m, err := ebpf.NewMapFromID(of); err == nil {
				if about, err := m.Info(); err == nil && strings.HasSuffix(about.Name, ".rodata") {
					constants[of] = true
				}
				m.Close()
			}
		}
	})
	return len(constants)
}

// mapsOf returns the maps of a program; none: it has ended.
func mapsOf(id ebpf.ProgramID) []ebpf.MapID {
	program, err := ebpf.NewProgramFromID(id)
	if err != nil {
		return nil
	}
	defer program.Close()
	about, err := program.Info()
	if err != nil {
		return nil
	}
	ids, _ := about.MapIDs()
	return ids
}
