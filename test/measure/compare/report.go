// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// halfWidth is the range of the middle half, halved.
func halfWidth(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[n*3/4] - sorted[n/4]) / 2
}

func (m *measured) print(out io.Writer) {
	var u unix.Utsname
	_ = unix.Uname(&u)
	fmt.Fprintf(out, "%s, Linux %s\n\n| self, %% | the program's own clock |", m.about, unix.ByteSliceToString(u.Release[:]))
	var read []*result
	for _, r := range m.results {
		if r.read != nil {
			read = append(read, r)
			fmt.Fprintf(out, " %s |", r.name)
		}
	}
	fmt.Fprintf(out, "\n|---|--:|%s\n", strings.Repeat("--:|", len(read)))
	for _, name := range functions {
		fmt.Fprintf(out, "| `%s` | %.1f |", name, m.truth.percent(name))
		for _, r := range read {
			fmt.Fprintf(out, " %.1f |", r.said.percent(name))
		}
		fmt.Fprintln(out)
	}
	fmt.Fprint(out, "| elsewhere | |")
	for _, r := range read {
		rest := 100.0
		for _, name := range functions {
			rest -= r.said.percent(name)
		}
		fmt.Fprintf(out, " %.1f |", rest)
	}
	fmt.Fprint(out, "\n| samples | |")
	for _, r := range read {
		fmt.Fprintf(out, " %.0f |", r.said.sum())
	}
	fmt.Fprint(out, "\n\n| cost | CPU time, ms/s | eBPF run time, ms/s | together | start and end, ms | work per CPU second | work per second |\n|---|--:|--:|--:|--:|--:|--:|\n")
	for _, r := range m.results {
		fmt.Fprintf(out, "| %s | %.2f | %.2f | **%.2f** | %.0f | %+.2f ± %.2f %% | %+.2f ± %.2f %% |\n", r.name,
			median(r.cpu), median(r.kernel), r.cost(), median(r.around),
			-median(r.slower), halfWidth(r.slower), -median(r.slowerWall), halfWidth(r.slowerWall))
	}
}

// printLost prints the slowdown of the program.
func (m *measured) printLost(out io.Writer) {
	fmt.Fprint(out, "\n| on one CPU with the program | the program is stalled, ms/s | of it in eBPF, ms/s | work per second |\n|---|--:|--:|--:|\n")
	for _, r := range m.results {
		fmt.Fprintf(out, "| %s | **%.2f** ± %.2f | %.2f | %+.2f ± %.2f %% |\n", r.name, median(r.lost), halfWidth(r.lost),
			median(r.kernel), -median(r.slowerWall), halfWidth(r.slowerWall))
	}
}

// judgeLost fails if the first tool, ours, slowed the program down as much as another.
func (m *measured) judgeLost() error {
	var wrong []error
	for _, r := range m.results[1:] {
		if ours, theirs := median(m.results[0].lost), median(r.lost); ours >= theirs {
			wrong = append(wrong, fmt.Errorf("on one CPU py_stack stalls the program for %.2f ms/s, %s for %.2f", ours, r.name, theirs))
		}
	}
	return errors.Join(wrong...)
}

// cost in milliseconds per second.
func (r *result) cost() float64 { return median(r.cpu) + median(r.kernel) }

// judge fails when a share is 2 points from another tool's, or when the first
// tool, ours, costs more than another.
func (m *measured) judge() error {
	ours := m.results[0]
	var wrong []string
	for _, r := range m.results[1:] {
		for _, name := range functions {
			if r.read == nil {
				break
			}
			if d := ours.said.percent(name) - r.said.percent(name); math.Abs(d) > 2 {
				wrong = append(wrong, fmt.Sprintf("%s: %+.1f points from %s (the program says %.1f %%)", name, d, r.name, m.truth.percent(name)))
			}
		}
		if ours.cost() >= r.cost() {
			wrong = append(wrong, fmt.Sprintf("we cost %.2f ms/s, %s %.2f", ours.cost(), r.name, r.cost()))
		}
	}
	if wrong != nil {
		return fmt.Errorf("%s", strings.Join(wrong, "\n"))
	}
	return nil
}
