// SPDX-License-Identifier: Apache-2.0

package collective

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// LostNode is a node of whose ranks nothing is heard any more.
type LostNode struct {
	Name  string
	Heard Time // when something was heard last of one of them
}

// tenantNode is a node with ranks of a tenant. Tenants that share a lost node have a verdict each.
type tenantNode struct{ tenant, node string }

// heardOf returns when something was heard last of a node, computed once per Evaluate.
func (a *Analyzer) heardOf(node string) Time {
	if a.heard == nil {
		a.heard = map[string]Time{}
		for _, c := range a.comms {
			for _, m := range c.members {
				a.heard[m.Process.Node] = max(a.heard[m.Process.Node], m.At)
			}
		}
	}
	return a.heard[node]
}

// lost returns the lost nodes of the ranks that are missing in an operation, where all others have arrived.
func (a *Analyzer) lost(s *stuck, now Time) (out []tenantNode) {
	if !s.hasArrived() {
		return nil
	}
	for _, m := range s.comm.members {
		node := tenantNode{m.tenant, m.Process.Node}
		if s.peer != None && m.Rank != s.peer || node.node == "" || a.observes(m, now) || slices.Contains(out, node) {
			continue
		}
		if now-a.heardOf(node.node) > Time(a.cfg.Silent) {
			out = append(out, node)
		}
	}
	slices.SortFunc(out, func(a, b tenantNode) int { return cmp.Or(cmp.Compare(a.node, b.node), cmp.Compare(a.tenant, b.tenant)) })
	return out
}

// mergeLost merges causes that wait for ranks of the same lost node: a node has ranks of many communicators.
func (a *Analyzer) mergeLost(items []*stuck, cause []int, now Time) {
	first := map[tenantNode]int{}
	for n, s := range items {
		if cause[n] != n {
			continue
		}
		nodes := a.lost(s, now)
		for _, node := range nodes {
			if to, known := first[node]; known {
				cause[n] = to
				break
			}
		}
		for _, node := range nodes {
			if _, known := first[node]; !known {
				first[node] = cause[n]
			}
		}
	}
	for n := range cause {
		cause[n] = cause[cause[n]]
	}
}

// lostNodes are those of a group.
func (a *Analyzer) lostNodes(g *group, now Time) (out []LostNode) {
	for _, s := range append([]*stuck{g.root}, g.behind...) {
		for _, node := range a.lost(s, now) {
			out = append(out, LostNode{node.node, a.heardOf(node.node)})
		}
	}
	slices.SortFunc(out, func(a, b LostNode) int { return cmp.Compare(a.Name, b.Name) })
	out = slices.Compact(out)
	return out[:min(len(out), MaxNamed)]
}

// lostText is ": node two has been silent for 50s".
func (v *Verdict) lostText(now Time) string {
	if len(v.Lost) == 0 {
		return ""
	}
	var names []string
	heard := Time(0)
	for n, l := range v.Lost {
		if heard = max(heard, l.Heard); n < maxLines {
			names = append(names, l.Name)
		}
	}
	nodes, has := "nodes ", "have"
	if len(v.Lost) == 1 {
		nodes, has = "node ", "has"
	}
	nodes += strings.Join(names, ", ")
	if more := len(v.Lost) - maxLines; more > 0 {
		nodes += fmt.Sprintf(" and %d others", more)
	}
	been := has + " been"
	if v.Cleared != 0 {
		now, been = v.Cleared, "had been"
	}
	return fmt.Sprintf(": %s %s silent for %s", nodes, been, seconds(time.Duration(now-heard)))
}
