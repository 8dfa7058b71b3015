// SPDX-License-Identifier: Apache-2.0

package top

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

// group is a row of the screen. Where a field differs among its rows, it is several.
type group struct {
	name  string
	layer profile.Layer
	// now, or with a mark: since; before is at the mark.
	values, before profile.Values
	// perSecond is launches, over the last reading.
	perSecond float64

	kind, device, process word
	isUnknown             bool // the device of some rows is not known
}

// addOrigin adds what the row's memory or calls are of: kind, device and process.
func (g *group) addOrigin(r *Row) {
	g.kind.add(r.Kind)
	g.addDevice(r.Device)
	g.process.add(processName(r.Process))
}

func (g *group) addDevice(device int32) {
	if device >= 0 {
		g.device.add(DeviceName(device))
	}
	g.isUnknown = g.isUnknown || device == profile.UnknownDevice
}

// devices are those of all rows; host memory has none.
func (g *group) devices() string {
	text := g.device.plural("GPUs")
	switch {
	case !g.isUnknown:
		return text
	case text == "":
		return "unknown"
	}
	return text + ", ?"
}

// word is the name that all rows of a group have in common.
type word struct {
	text    string
	isSet   bool
	several int
	seen    map[string]bool
}

func (w *word) add(text string) {
	switch {
	case !w.isSet:
		w.text, w.isSet, w.several = text, true, 1
	case w.text == text:
	default:
		if w.seen == nil {
			w.seen = map[string]bool{w.text: true}
		}
		w.seen[text] = true
		w.several = len(w.seen)
	}
}

// plural is the common word, or how many there are.
func (w *word) plural(noun string) string {
	if w.several > 1 {
		return fmt.Sprintf("%d %s", w.several, noun)
	}
	return w.text
}

type groupKey struct {
	name  string
	layer profile.Layer
}

// groups adds the rows up.
func (m *Model) groups() []*group {
	t := m.table(m.View.Subject())
	all := map[groupKey]*group{}
	find := func(r *Row) *group {
		key := groupKey{m.nameOf(r), r.Layer()}
		g := all[key]
		if g == nil {
			g = &group{name: key.name, layer: key.layer}
			all[key] = g
		}
		return g
	}
	for i := range t.now {
		r := &t.now[i]
		g := find(r)
		g.values = g.values.Add(r.Values)
		g.addOrigin(r)
	}
	if seconds := t.at.Sub(t.beforeAt).Seconds(); t.hasBefore && seconds > 0 {
		for _, g := range all {
			g.perSecond = float64(g.values.Launches) / seconds
		}
		for i := range t.before {
			r := &t.before[i]
			if g := all[groupKey{m.nameOf(r), r.Layer()}]; g != nil {
				g.perSecond -= float64(r.Values.Launches) / seconds
			}
		}
	}
	if m.Diff {
		for i := range t.base {
			r := &t.base[i]
			g := find(r)
			g.before = g.before.Add(r.Values)
			g.addOrigin(r)
		}
		for _, g := range all {
			g.values = g.values.Sub(g.before)
		}
	}
	out := make([]*group, 0, len(all))
	for _, g := range all {
		if m.isShown(g) {
			out = append(out, g)
		}
	}
	return out
}

// isShown leaves out what the view has nothing to say of, which is 0 in its columns.
func (m *Model) isShown(g *group) bool {
	v := &g.values
	switch m.View {
	case Memory:
		return *v != profile.Values{}
	case Launches:
		return v.Launches != 0 || v.CopiedBytes != 0 || v.Kernels != 0 || v.DeviceNanoseconds != 0
	case Waits:
		return v.WaitNanoseconds != 0
	}
	return v.Samples != 0
}

// nameOf returns the name that the row is grouped by.
func (m *Model) nameOf(r *Row) string {
	switch m.By {
	case ByStack:
		return strings.Join(callers(r), "; ")
	case ByProcess:
		return processName(r.Process)
	case ByDevice:
		return DeviceName(r.Device)
	case ByPod:
		return podName(r.Process)
	case ByKernel:
		if r.Kernel == "" {
			return "[no kernel]"
		}
		return r.Kernel
	}
	return label(r)
}

func processName(p profile.Process) string { return fmt.Sprintf("%s[%d]", p.Comm, p.PID) }

// DeviceName is a CUDA ordinal in words.
func DeviceName(device int32) string {
	switch {
	case device >= 0:
		return fmt.Sprintf("GPU %d", device)
	case device == profile.UnknownDevice:
		return "unknown"
	}
	return ""
}

func podName(p profile.Process) string {
	switch {
	case p.Pod != "":
		return p.Namespace + "/" + p.Pod
	case p.Container != "":
		return p.Container
	}
	return "[no pod]"
}

// sortGroups puts the largest first; equal ones by name, so that they stay where they are.
func (m *Model) sortGroups(all []*group, by column) {
	slices.SortFunc(all, func(a, b *group) int {
		if by.value != nil {
			if c := cmp.Compare(magnitude(by.value(b)), magnitude(by.value(a))); c != 0 {
				return c
			}
			own := columnsOf(m.View, m.Diff)[0]
			if c := cmp.Compare(own.value(b), own.value(a)); c != 0 {
				return c
			}
			if c := cmp.Compare(b.values.PeakBytes, a.values.PeakBytes); c != 0 {
				return c
			}
		}
		if c := strings.Compare(a.name, b.name); c != 0 {
			return c
		}
		return int(a.layer) - int(b.layer)
	})
}

func magnitude(v float64) float64 { return max(v, -v) }

// totals are the sums of what is shown, by layer.
func totals(all []*group) (sums []*group) {
	for _, layer := range []profile.Layer{profile.Driver, profile.Torch} {
		var sum *group
		for _, g := range all {
			if g.layer != layer {
				continue
			}
			if sum == nil {
				sum = &group{layer: layer}
			}
			sum.values, sum.before = sum.values.Add(g.values), sum.before.Add(g.before)
			sum.perSecond += g.perSecond
		}
		if sum != nil {
			sums = append(sums, sum)
		}
	}
	return sums
}

// duration in a few columns.
func duration(ns int64) string {
	d, sign := time.Duration(ns), ""
	if d < 0 {
		d, sign = -d, "-"
	}
	switch {
	case d >= time.Hour:
		return fmt.Sprintf("%s%dh%02dm", sign, int(d.Hours()), int(d.Minutes())%60)
	case d >= time.Minute:
		return fmt.Sprintf("%s%dm%02ds", sign, int(d.Minutes()), int(d.Seconds())%60)
	case d >= time.Second:
		return fmt.Sprintf("%s%.2f s", sign, d.Seconds())
	case d >= time.Millisecond:
		return fmt.Sprintf("%s%.1f ms", sign, float64(d)/1e6)
	case d == 0:
		return "0"
	}
	return fmt.Sprintf("%s%.1f µs", sign, float64(d)/1e3)
}
