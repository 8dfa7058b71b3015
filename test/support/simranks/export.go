// SPDX-License-Identifier: Apache-2.0

package simranks

import (
	"fmt"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/internal/collective"
)

// Sample is a node's exported value of one series.
type Sample struct {
	Series string // as Prometheus writes it
	Step   int
	Value  float64
}

// Export runs an analyzer on each node for that node's processes only, and returns the
// exports of the nodes, every step, as Prometheus would scrape them.
func Export(s *Scenario, step time.Duration) ([]Sample, error) {
	var out []Sample
	for node := 0; node*perNode < s.Size; node++ {
		a, err := collective.New(collective.Config{})
		if err != nil {
			return nil, err
		}
		gone := map[int]bool{}
		n := 0
		for now := s.Begin; now < s.End && !s.isLost(node*perNode, now); now += collective.Time(time.Second) {
			for p := node * perNode; p < min(s.Size, (node+1)*perNode); p++ {
				late := collective.Time(0)
				if s.Late != nil {
					late = s.Late[p]
				}
				if now < late || gone[p] {
					continue
				}
				for _, o := range s.Job.Observe(p, now, late) {
					if o.State == collective.Gone {
						gone[p] = true
						o.State = collective.Running
					}
					if err := a.Observe(o); err != nil {
						return nil, err
					}
				}
				if gone[p] {
					a.Gone(s.Job.Process(p), now)
				}
			}
			a.Evaluate(now)
			if (now-s.Begin)%collective.Time(step) != 0 {
				continue
			}
			for _, rank := range a.Ranks(now) {
				for _, m := range rank.Metrics(0) {
					labels := append([][2]string{{"instance", rank.Process.Node}, {"process_pid", strconv.Itoa(int(rank.Process.PID))}}, m.Labels...)
					out = append(out, Sample{series(m.Instrument.Prometheus, labels), n, m.Value})
				}
			}
			n++
		}
	}
	return out, nil
}

func series(name string, labels [][2]string) string {
	var parts []string
	for _, l := range labels {
		if l[1] != "" {
			parts = append(parts, fmt.Sprintf("%s=%q", l[0], l[1]))
		}
	}
	sort.Strings(parts)
	return name + "{" + strings.Join(parts, ",") + "}"
}

// Verdict is the expected result of the rules of dashboards/nccl.yaml at the end: labels
// of the results of three queries, sorted.
func (s *Scenario) Verdict() (reasons, processes, communicators []string) {
	reasons = []string{fmt.Sprintf(`{reason=%q}`, s.Truth.Reason)}
	if s.Truth.Hash != 0 {
		communicators = []string{fmt.Sprintf(`{communicator=%q}`, collective.Communicator{Hash: s.Truth.Hash}.ID())}
	}
	for _, n := range s.Truth.Processes {
		p := s.Job.Process(n)
		processes = append(processes, fmt.Sprintf(`{instance=%q, process_pid="%d"}`, p.Node, p.PID))
	}
	return reasons, processes, communicators
}
