// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/gpu-gadgets/gpu-gadgets/cmd/gpu-exporter/internal/feed"
	"github.com/gpu-gadgets/gpu-gadgets/operators/judge/ranks"
)

// State of a node. It is a label of metrics.
type State string

// States of a node.
const (
	Away      State = "away" // it does not respond, or did not yet
	Connected State = "connected"
	CutOff    State = "cut off"
)

// Stats are counts of what daemons send, for metrics. The zero value is ready, and it is safe for
// concurrent use.
type Stats struct {
	// Ranks is the judge of ranks; nil: there is none. It is set before Instrument.
	Ranks *ranks.Joiner

	mu    sync.Mutex
	nodes map[string]State
	cuts  map[cut]int64
	bytes int64
}

type cut struct {
	node   string
	reason feed.Reason
}

func (s *Stats) set(node string, state State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.nodes == nil {
		s.nodes, s.cuts = map[string]State{}, map[cut]int64{}
	}
	s.nodes[node] = state
}

func (s *Stats) add(node string) { s.set(node, Away) }

func (s *Stats) remove(node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.nodes, node)
	for _, reason := range feed.Reasons() {
		delete(s.cuts, cut{node, reason})
	}
}

func (s *Stats) cutOff(node string, reason feed.Reason) {
	s.set(node, CutOff)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cuts[cut{node, reason}]++
}

func (s *Stats) received(bytes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bytes += int64(bytes)
}

// Instrument implements metrics.Source.
func (s *Stats) Instrument(meter metric.Meter) (func(), error) {
	nodes, err := meter.Int64ObservableGauge("gpu.exporter.nodes", metric.WithDescription("Nodes that this exporter connects to, by state"))
	if err != nil {
		return nil, fmt.Errorf("metric gpu.exporter.nodes: %w", err)
	}
	cuts, err := meter.Int64ObservableCounter("gpu.exporter.cut_offs", metric.WithDescription("How often a daemon was cut off, by node and reason"))
	if err != nil {
		return nil, fmt.Errorf("metric gpu.exporter.cut_offs: %w", err)
	}
	bytes, err := meter.Int64ObservableCounter("gpu.exporter.received", metric.WithUnit("By"), metric.WithDescription("Bytes of packets from all daemons"))
	if err != nil {
		return nil, fmt.Errorf("metric gpu.exporter.received: %w", err)
	}
	late, err := meter.Int64ObservableGauge("gpu.exporter.late_nodes", metric.WithDescription("Nodes whose ranks are not judged, because their rows are too old; if it is most of them, none is judged"))
	if err != nil {
		return nil, fmt.Errorf("metric gpu.exporter.late_nodes: %w", err)
	}
	refused, err := meter.Int64ObservableCounter("gpu.exporter.refused_ranks", metric.WithDescription("Observations of ranks that contradict themselves or others, or exceed the number of ranks"))
	if err != nil {
		return nil, fmt.Errorf("metric gpu.exporter.refused_ranks: %w", err)
	}
	registration, err := meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		if s.Ranks != nil {
			n, _ := s.Ranks.Late(time.Now())
			o.ObserveInt64(late, int64(n))
			o.ObserveInt64(refused, int64(s.Ranks.Refused()))
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		states := map[State]int64{Away: 0, Connected: 0, CutOff: 0}
		for _, state := range s.nodes {
			states[state]++
		}
		for state, n := range states {
			o.ObserveInt64(nodes, n, metric.WithAttributes(attribute.String("state", string(state))))
		}
		for c, n := range s.cuts {
			o.ObserveInt64(cuts, n, metric.WithAttributes(attribute.String("k8s.node.name", c.node), attribute.String("reason", string(c.reason))))
		}
		o.ObserveInt64(bytes, s.bytes)
		return nil
	}, nodes, cuts, bytes, late, refused)
	if err != nil {
		return nil, fmt.Errorf("metrics of the exporter: %w", err)
	}
	return func() { _ = registration.Unregister() }, nil
}
