// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"math"

	"go.opentelemetry.io/otel/attribute"

	"github.com/gpu-gadgets/gpu-gadgets/internal/export/label"
)

// kindHost is pinned host memory, which is not on a device.
const kindHost = "host"

// labels makes the labels of a series. If all series are from one node, the node is in
// the resource.
type labels struct{ hasNodes bool }

func (l labels) of(s Series) attribute.Set {
	return l.with(s, attribute.String("kind", label.Valid(s.Kind)))
}

// with has the labels of all series of rows: the vendor's is that of the GPU's own series.
func (l labels) with(s Series, more ...attribute.KeyValue) attribute.Set {
	return l.on(s.Process.Node, append(append(label.Process(s.Process),
		attribute.Int64("device", int64(s.Device)), attribute.String("hw.vendor", s.Vendor)), more...)...)
}

func (l labels) on(node string, all ...attribute.KeyValue) attribute.Set {
	if l.hasNodes {
		all = append(all, attribute.String(keyNode, label.Valid(node)))
	}
	return attribute.NewSet(all...)
}

// group has the samples with the same set of labels.
type group struct {
	labels attribute.Set
	sums   Sums
	live   bool
	id     uint64 // of the process that ended last
}

// groups adds up samples by label set. If a pid is reused, the series belongs to the new
// process, and the old one's last values are not added to it, because the sum would fall
// when the old one is dropped.
func groups(samples []Sample, labels func(Sample) attribute.Set) []*group {
	index := map[attribute.Distinct]*group{}
	var all []*group
	for _, s := range samples {
		set := labels(s)
		g := index[set.Equivalent()]
		if g == nil {
			g = &group{labels: set, live: !s.Ended, id: s.Process.ID}
			index[set.Equivalent()] = g
			all = append(all, g)
		}
		switch {
		case s.Process.ID == g.id || !s.Ended && g.live:
			g.sums = g.sums.add(s.Sums)
		case !s.Ended:
			g.sums, g.live, g.id = s.Sums, true, s.Process.ID
		}
	}
	return all
}

func (s Sums) add(o Sums) Sums {
	s.Values = s.Values.Add(o.Values)
	s.Failed += o.Failed
	s.FailedBytes = saturated(s.FailedBytes, o.FailedBytes)
	s.Calls += o.Calls
	s.CallBytes += o.CallBytes
	s.CallNanoseconds += o.CallNanoseconds
	return s
}

// maxCounter is the highest number below 2⁶³ that a float64 has: OpenTelemetry's sums pass through one.
const maxCounter = math.MaxInt64 - 1023

// saturated adds to a counter what a process has chosen freely. At the highest number it stays there.
func saturated(sum, more int64) int64 {
	if more = min(max(more, 0), maxCounter); sum > maxCounter-more {
		return maxCounter
	}
	return sum + more
}
