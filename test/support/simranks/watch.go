// SPDX-License-Identifier: Apache-2.0

package simranks

import (
	"fmt"
	"slices"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/internal/collective"
)

// Seen is the result of an analyzer in a scenario.
type Seen struct {
	// Events in their order, and the verdicts that held at the end.
	Events []collective.Verdict
	Last   []collective.Verdict
	End    collective.Time
}

// Watch runs an analyzer that observes the job once a second, each process at a different
// moment, like the daemons of several nodes.
func Watch(s *Scenario, cfg collective.Config) (*Seen, error) {
	a, err := collective.New(cfg)
	if err != nil {
		return nil, err
	}
	seen := &Seen{End: s.End}
	gone := map[int]bool{}
	for now := s.Begin; now < s.End; now += collective.Time(time.Second) {
		for n := range s.Size {
			late := collective.Time(0)
			if s.Late != nil {
				late = s.Late[n]
			}
			at := now - collective.Time(n%perNode)*collective.Time(100*time.Microsecond) - collective.Time(n/perNode)*collective.Time(50*time.Millisecond)
			if at < late || at < s.Begin || gone[n] || s.isLost(n, at) {
				continue
			}
			for _, o := range s.Job.Observe(n, at, late) {
				if o.State == collective.Gone {
					gone[n] = true
					o.State = collective.Running // it was, when it issued that
				}
				if err := a.Observe(o); err != nil {
					return nil, err
				}
			}
			if gone[n] {
				a.Gone(s.Job.Process(n), at)
			}
		}
		seen.Events = append(seen.Events, a.Evaluate(now)...)
	}
	seen.Last = a.Verdicts()
	return seen, nil
}

// Answer is the part in which two judges must agree: the reason, and the ranks.
func (s *Scenario) Answer(v *collective.Verdict) string {
	switch v.Reason {
	case collective.Slow, collective.Elsewhere:
		return fmt.Sprintf("%s %s", v.Reason, v.Communicator.ID())
	case collective.Mismatch:
		if v.Seq == 0 {
			return fmt.Sprintf("%s order", v.Reason)
		}
		return fmt.Sprintf("%s %s", v.Reason, v.Communicator.ID())
	}
	var who []string
	for _, c := range v.Missing {
		who = append(who, fmt.Sprintf("%s/%d", c.Process.Node, c.Process.PID))
	}
	slices.Sort(who)
	return fmt.Sprintf("%s %v", v.Reason, who)
}

// Want is the answer that is true.
func (s *Scenario) Want() string {
	switch s.Truth.Reason {
	case "":
		return ""
	case collective.Mismatch, collective.Slow, collective.Elsewhere:
		if s.Truth.Hash == 0 {
			return fmt.Sprintf("%s order", s.Truth.Reason)
		}
		return fmt.Sprintf("%s %s", s.Truth.Reason, collective.Communicator{Hash: s.Truth.Hash}.ID())
	}
	var who []string
	for _, n := range s.Truth.Processes {
		p := s.Job.Process(n)
		who = append(who, fmt.Sprintf("%s/%d", p.Node, p.PID))
	}
	slices.Sort(who)
	return fmt.Sprintf("%s %v", s.Truth.Reason, who)
}
