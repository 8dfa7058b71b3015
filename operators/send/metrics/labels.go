// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"strings"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"

	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

// kindHost is pinned host memory, which is in no device.
const kindHost = "host"

// ProcessAttributes are the labels of a process, the same ones for every process
// whether it is in a container or not: series must not gain labels later.
func ProcessAttributes(p profile.Process) []attribute.KeyValue {
	return []attribute.KeyValue{
		attribute.String("k8s.namespace.name", valid(p.Namespace)),
		attribute.String("k8s.pod.name", valid(p.Pod)),
		attribute.String("k8s.container.name", valid(p.Container)),
		attribute.Int64("process.pid", int64(p.PID)),
		attribute.String("process.comm", valid(p.Comm)),
	}
}

// labels makes them. Where all series are of one node, it is in the resource.
type labels struct{ hasNodes bool }

func (l labels) of(s Series) attribute.Set {
	return l.on(s.Process.Node, append(ProcessAttributes(s.Process),
		attribute.Int64("device", int64(s.Device)),
		attribute.String("kind", valid(s.Kind)))...)
}

func (l labels) on(node string, all ...attribute.KeyValue) attribute.Set {
	if l.hasNodes {
		all = append(all, attribute.String(keyNode, valid(node)))
	}
	return attribute.NewSet(all...)
}

// valid makes a name that a process gave itself fit for a label, which must be
// UTF-8 (protobuf and Prometheus refuse the whole message otherwise).
func valid(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// group is the samples that have one set of labels in common.
type group struct {
	labels attribute.Set
	sums   Sums
	live   bool
	id     uint64 // of the process that ended last
}

// groups adds up samples by label set. A pid is used again after its process
// ended: then the new process has the series, and the old one's last values are
// not added to it, because the sum would fall when the old one is forgotten.
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
	s.FailedBytes += o.FailedBytes
	s.Calls += o.Calls
	s.CallBytes += o.CallBytes
	s.CallNanoseconds += o.CallNanoseconds
	return s
}
