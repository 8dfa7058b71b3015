// SPDX-License-Identifier: Apache-2.0

package targets

import (
	"os"
	"os/user"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
)

// userOf is the owner of a process, by name where this machine knows one.
func userOf(dir string) string {
	info, err := os.Stat(dir)
	if err != nil {
		return ""
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	id := strconv.FormatUint(uint64(stat.Uid), 10)
	if u, err := user.LookupId(id); err == nil {
		return u.Username
	}
	return id
}

var (
	podUID      = regexp.MustCompile(`pod([0-9a-f]{8})[-_][0-9a-f]{4}[-_]`)
	containerID = regexp.MustCompile(`[/:-]([0-9a-f]{12})[0-9a-f]{52}(\.scope)?$`)
)

// podOf names the pod or the container of a process as its cgroup does: the first 8
// digits of the pod's UID, or the first 12 of the container's id.
func podOf(dir string) string {
	text, err := os.ReadFile(filepath.Join(dir, "cgroup"))
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if m := podUID.FindStringSubmatch(line); m != nil {
			return "pod " + m[1]
		}
		if m := containerID.FindStringSubmatch(line); m != nil {
			return m[1]
		}
	}
	return ""
}
