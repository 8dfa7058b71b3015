// SPDX-License-Identifier: Apache-2.0

package ranks

import (
	"context"
	"fmt"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/gpu-gadgets/gpu-gadgets/internal/collective"
	"github.com/gpu-gadgets/gpu-gadgets/internal/export/label"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

// Instrument implements metrics.Source: the progress of each rank, and what is wrong.
func (s *Store) Instrument(meter metric.Meter) (func(), error) {
	var all []metric.Observable
	instruments := map[*collective.Instrument]metric.Float64Observable{}
	for _, i := range collective.Instruments() {
		var err error
		var made metric.Float64Observable
		if i.IsCounter {
			made, err = meter.Float64ObservableCounter(i.Name, metric.WithUnit(i.Unit), metric.WithDescription(i.Description))
		} else {
			made, err = meter.Float64ObservableGauge(i.Name, metric.WithUnit(i.Unit), metric.WithDescription(i.Description))
		}
		if err != nil {
			return nil, fmt.Errorf("metric %s: %w", i.Name, err)
		}
		instruments[i] = made
		all = append(all, made)
	}
	verdicts, err := meter.Int64ObservableGauge("nccl.verdict", metric.WithDescription("1 for each rank at fault, by reason, as far as this node's ranks say"))
	if err != nil {
		return nil, fmt.Errorf("metric nccl.verdict: %w", err)
	}
	waited, err := meter.Float64ObservableGauge("nccl.verdict.waited", metric.WithUnit("s"), metric.WithDescription("How long other ranks have waited for it"))
	if err != nil {
		return nil, fmt.Errorf("metric nccl.verdict.waited: %w", err)
	}
	all = append(all, verdicts, waited)
	registration, err := meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		for r := range s.runs {
			for n := range r.ranks {
				rank := &r.ranks[n]
				process := processAttributes(rank.Process)
				for _, m := range rank.Metrics(r.toWall) {
					o.ObserveFloat64(instruments[m.Instrument], m.Value, metric.WithAttributes(attributes(process, m.Labels)...))
				}
			}
			for n := range r.open {
				v := &r.open[n]
				for _, c := range culprits(v) {
					labels := [][2]string{{"reason", string(v.Reason)}, {"communicator", v.Communicator.ID()},
						{"communicator_name", v.Communicator.Name}, {"rank", strconv.Itoa(c.Rank)}}
					set := metric.WithAttributes(attributes(processAttributes(c.Process), labels)...)
					o.ObserveInt64(verdicts, 1, set)
					o.ObserveFloat64(waited, v.Waited(r.now).Seconds(), set)
				}
			}
		}
		return nil
	}, all...)
	if err != nil {
		return nil, fmt.Errorf("metrics of NCCL: %w", err)
	}
	return func() { _ = registration.Unregister() }, nil
}

// culprits of a verdict; if there is none, a rank -1, so that it is counted, on each lost node, or in the container of one
// that waits.
func culprits(v *collective.Verdict) []collective.Culprit {
	if len(v.Missing) == 0 && len(v.Lost) > 0 {
		var all []collective.Culprit
		for _, l := range v.Lost {
			all = append(all, collective.Culprit{Rank: -1, Process: collective.Process{Node: l.Name, Namespace: v.Witness.Namespace}})
		}
		return all
	}
	if len(v.Missing) == 0 {
		return []collective.Culprit{{Rank: -1, Process: containerOf(v.Witness)}}
	}
	return v.Missing
}

// containerOf is where a process runs, without the process itself.
func containerOf(p collective.Process) collective.Process {
	p.ID, p.PID, p.Comm = 0, 0, ""
	return p
}

func attributes(process []attribute.KeyValue, labels [][2]string) []attribute.KeyValue {
	out := make([]attribute.KeyValue, 0, len(process)+len(labels))
	out = append(out, process...)
	for _, l := range labels {
		out = append(out, attribute.String(l[0], oneLine(l[1])))
	}
	return out
}

// processAttributes are those of a process; where the ranks of many nodes are known, with its node.
func processAttributes(p collective.Process) []attribute.KeyValue {
	all := label.Process(profileOf(p))
	if p.Node != "" {
		all = append(all, attribute.String("k8s.node.name", oneLine(p.Node)))
	}
	return all
}

// profileOf is a process as labels name it.
func profileOf(p collective.Process) profile.Process {
	return profile.Process{ID: p.ID, PID: p.PID, Comm: p.Comm, Namespace: p.Namespace, Pod: p.Pod, Container: p.Container}
}
