// SPDX-License-Identifier: Apache-2.0

package verb

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/gpu-gadgets/gpu-gadgets/internal/format/screen"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/labels"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

// group are the rows with one value of a label.
type group struct {
	value string
	sum   profile.Values
}

// labelsOf are the labels of a row by which report --by sums.
func labelsOf(r profile.Row) map[string]string {
	all := map[string]string{
		"comm": r.Process.Comm, "namespace": r.Process.Namespace, "pod": r.Process.Pod, "container": r.Process.Container,
		"pid": strconv.FormatUint(uint64(r.Process.PID), 10), "kind": r.Kind, "span_id": r.Span.String(),
	}
	if r.Device >= 0 {
		all["device"] = strconv.Itoa(int(r.Device))
	}
	for _, l := range labels.Decode(r.Process.Labels) {
		all[l[0]] = l[1]
	}
	return all
}

// groupsOf sums rows by a label, the largest first by t. Rows without it are a group, too.
func groupsOf(p *profile.Profile, by string, t profile.Type) ([]group, error) {
	sums := map[string]profile.Values{}
	known := map[string]bool{}
	for _, r := range p.Rows {
		all := labelsOf(r)
		for name := range all {
			known[name] = true
		}
		sums[all[by]] = sums[all[by]].Add(r.Values)
	}
	if len(p.Rows) > 0 && !known[by] {
		return nil, fmt.Errorf("--by %s: this profile has %s", by, strings.Join(slices.Sorted(maps.Keys(known)), ", "))
	}
	var groups []group
	for value, sum := range sums {
		groups = append(groups, group{value, sum})
	}
	slices.SortFunc(groups, func(a, b group) int {
		return cmp.Or(cmp.Compare(abs(b.sum.Get(t)), abs(a.sum.Get(t))), cmp.Compare(a.value, b.value))
	})
	return groups, nil
}

// noValue is shown for rows without the label.
const noValue = "(none)"

// reportBy prints all sample types of each value of a label.
func reportBy(w io.Writer, p *profile.Profile, t profile.Type, o reportOptions) error {
	groups, err := groupsOf(p, o.by, t)
	if err != nil {
		return err
	}
	types := sampleTypes(p, t.Layer() == profile.Torch)
	left := 0
	if o.limit > 0 && len(groups) > o.limit {
		left = len(groups) - o.limit
		groups = groups[:o.limit]
	}
	if o.output == "json" {
		encoder := json.NewEncoder(w)
		for _, g := range groups {
			line := map[string]any{"by": o.by, "value": g.value}
			for _, t := range types {
				line[t.String()] = g.sum.Get(t)
			}
			if err := encoder.Encode(line); err != nil {
				return fmt.Errorf("print report: %w", err)
			}
		}
		return nil
	}
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, t := range types {
		fmt.Fprintf(out, "%s\t", strings.ToUpper(t.String()))
	}
	fmt.Fprintf(out, " %s\n", strings.ToUpper(o.by))
	for _, g := range groups {
		for _, t := range types {
			fmt.Fprintf(out, "%s\t", valueText(g.sum.Get(t), t.Unit()))
		}
		fmt.Fprintf(out, " %s\n", screen.Clean(cmp.Or(g.value, noValue)))
	}
	_ = out.Flush()
	if left > 0 {
		fmt.Fprintf(w, "%d more: --max-entries 0 shows them\n", left)
	}
	return nil
}
