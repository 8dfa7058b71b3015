// SPDX-License-Identifier: Apache-2.0

package subject

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Probes returns how many eBPF links a process holds that probe a file with this name.
// Other programs that trace the whole machine have links of their own, which do not
// count. Linux before 6.17 does not show the files of a link, so all links to functions
// of files count there.
func Probes(pid int, name string) int {
	infos, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", pid)) // none: the process has ended
	links := 0
	for _, path := range infos {
		info, err := os.ReadFile(path)
		if err == nil && isProbe(info, name) {
			links++
		}
	}
	return links
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

// WaitProbes waits until the process has probes in a file and has added none for half a
// second, and reports false if the context ends before that.
func WaitProbes(ctx context.Context, pid int, name string) bool {
	const settled = 500 * time.Millisecond
	links, since := 0, time.Now()
	for ; ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
		if n := Probes(pid, name); n != links {
			links, since = n, time.Now()
		} else if links > 0 && time.Since(since) >= settled {
			return true
		}
	}
	return false
}
