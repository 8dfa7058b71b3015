// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/gpu-gadgets/gpu-gadgets/cmd/gpu-kit/internal/report"
)

// clean checks that the eBPF objects of every ig-gpu of the run are gone, and its
// processes. Files are below k.temp, which is removed at the end.
func (k *kit) clean(ctx context.Context, s *report.Step) error {
	if len(k.objects) == 0 {
		s.Impossible("eBPF objects that are left", "no ig-gpu had any")
	} else {
		left := k.left(ctx)
		s.Equal("eBPF objects that are left", "none", listed(left))
	}
	switch {
	case k.isSimulated:
		s.Impossible("settings of the GPUs", simulated)
	case k.settings == "":
		s.Impossible("settings of the GPUs", "nvidia-smi does not say them")
	default:
		s.Equal("settings of the GPUs", k.settings, settings(ctx))
	}
	children, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/children", os.Getpid()))
	if err != nil {
		s.Impossible("processes that are left", "this kernel does not list children")
		return nil
	}
	s.Equal("processes that are left", 0, len(strings.Fields(string(children))))
	return nil
}

// settings returns those of the GPUs by nvidia-smi, a line for each; "" if it does not report them.
func settings(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "nvidia-smi", "--format=csv,noheader", "--query-gpu=index,persistence_mode,"+
		"compute_mode,power.limit,clocks.applications.graphics,clocks.applications.memory,ecc.mode.current,mig.mode.current").Output()
	if err != nil {
		return ""
	}
	return strings.Join(strings.Split(strings.TrimSpace(string(out)), "\n"), "; ")
}

// left waits until the kernel has freed the objects of ig-gpu, which it does some time
// after the end, or until a few seconds have passed.
func (k *kit) left(ctx context.Context) map[string]string {
	left := map[string]string{}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		clear(left)
		for _, object := range slices.Sorted(maps.Keys(k.objects)) {
			if exists(object) {
				left[object] = "exists"
			}
		}
		if len(left) == 0 || time.Now().After(deadline) || ctx.Err() != nil {
			return left
		}
	}
}

// exists reports whether there is an eBPF object such as "prog 12".
func exists(object string) bool {
	kind, text, _ := strings.Cut(object, " ")
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return false
	}
	var closer interface{ Close() error }
	switch kind {
	case "prog":
		closer, err = ebpf.NewProgramFromID(ebpf.ProgramID(n))
	case "map":
		closer, err = ebpf.NewMapFromID(ebpf.MapID(n))
	default:
		closer, err = link.NewFromID(link.ID(n))
	}
	if err == nil {
		closer.Close()
	}
	return !errors.Is(err, os.ErrNotExist)
}
