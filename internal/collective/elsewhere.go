// SPDX-License-Identifier: Apache-2.0

package collective

import "fmt"

// observes reports whether there are recent observations of a rank, or it is known to have ended. m may be nil.
func (a *Analyzer) observes(m *member, now Time) bool {
	return m != nil && (m.ended != 0 || !m.isSilent(now, a.cfg.Silent))
}

// unobserved are ranks of a communicator that are not observed, at most MaxNamed.
func (a *Analyzer) unobserved(c *communicator, now Time) (out []int, more bool) {
	seen := map[int]bool{}
	for _, m := range a.observed(c, now) {
		seen[m.Rank] = true
	}
	for r := range c.Size {
		if seen[r] {
			continue
		}
		if len(out) == MaxNamed {
			return out, true
		}
		out = append(out, r)
	}
	return out, false
}

// peersElsewhere are the waits of ranks for peers that are not observed: one for each peer and direction, whichever ranks wait.
// What a rank that waits there does not do elsewhere is a consequence.
type peersElsewhere struct {
	all []*stuck
	of  map[peerKey]*stuck
}

// add adds a rank, if it waits for such a peer now.
func (e *peersElsewhere) add(m *member, key peerKey, now Time) {
	op := m.pendingWith(key, now)
	if op == nil {
		return
	}
	s := e.of[key]
	if s == nil {
		if e.of == nil {
			e.of = map[peerKey]*stuck{}
		}
		s = &stuck{comm: m.comm, kind: op.Kind, seq: op.Seq, peer: key.peer, since: op.Enter, all: true, id: m.id(op)}
		e.of[key], e.all = s, append(e.all, s)
	}
	s.since = min(s.since, op.Enter)
	s.waiting = append(s.waiting, m)
}

func (v *Verdict) elsewhereText(waited string) string {
	unseen := ranks(v.Unseen, len(v.Unseen))
	if v.MoreUnseen {
		unseen += " and more"
	}
	isOne := len(v.Unseen) == 1 && !v.MoreUnseen
	// Without the names of nodes only the ranks of one are observed.
	whose, where := " on this node", "are on other nodes"
	if isOne {
		where = "is on another node"
	}
	if v.Witness.Node != "" {
		if whose, where = " that are heard of", "are not heard of"; isOne {
			where = "is not heard of"
		}
	}
	if v.Peer != None {
		wait := "wait"
		if v.WaitingCount == 1 {
			wait = "waits"
		}
		return fmt.Sprintf("%s %s in %s, for %s; %s %s", ranks(v.Waiting, v.WaitingCount), wait, v.operation(), waited, unseen, where)
	}
	return fmt.Sprintf("all ranks%s are in %s, for %s; %s of it %s", whose, v.operation(), waited, unseen, where)
}
