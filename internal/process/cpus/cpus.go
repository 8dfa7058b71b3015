// SPDX-License-Identifier: Apache-2.0

// Package cpus lists the processors that are online. The events of perf on a processor end when it
// goes offline, and stay ended when it comes back.
package cpus

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// list is the kernel's, e.g. "0-3,8".
const list = "/sys/devices/system/cpu/online"

// Period is how often Watch reads the list. A processor that goes and comes back within it is not
// noticed.
const Period = time.Second

// Online returns the numbers of the processors that are online, ascending.
func Online() ([]int, error) {
	text, err := os.ReadFile(list)
	if err != nil {
		return nil, fmt.Errorf("list CPUs: %w", err)
	}
	return parse(strings.TrimSpace(string(text)))
}

// Watch calls fn with the processors that came online since before was listed, until ctx is done.
func Watch(ctx context.Context, before []int, fn func(came []int)) {
	ticker := time.NewTicker(Period)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		now, err := Online()
		if err != nil {
			continue // sysfs was unmounted
		}
		if came := without(now, before); len(came) > 0 {
			fn(came)
		}
		before = now
	}
}

// without returns those of all that are not in some.
func without(all, some []int) []int {
	return slices.DeleteFunc(slices.Clone(all), func(cpu int) bool { return slices.Contains(some, cpu) })
}

func parse(list string) (cpus []int, err error) {
	for part := range strings.SplitSeq(list, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		from, err := strconv.ParseUint(first, 10, 16)
		if err != nil {
			return nil, fmt.Errorf("list of CPUs %q: %w", list, err)
		}
		to, err := strconv.ParseUint(last, 10, 16)
		if err != nil {
			return nil, fmt.Errorf("list of CPUs %q: %w", list, err)
		}
		for ; from <= to; from++ {
			cpus = append(cpus, int(from))
		}
	}
	return cpus, nil
}
