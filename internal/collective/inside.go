// SPDX-License-Identifier: Apache-2.0

package collective

import "fmt"

// inside returns the collective that the rank has entered for at least Hang and did not return
// from; nil: none. NCCL returns as soon as the operation is enqueued, within microseconds,
// except while it connects ranks. A rank that ended or is stopped has a better word.
func (a *Analyzer) inside(m *member, now Time) *Operation {
	if m.State.IsDead() {
		return nil
	}
	for n := range m.Operations {
		op := &m.Operations[n]
		if !op.Kind.IsPeer() && op.Return == 0 && op.DoneBy == 0 && now-op.Enter >= Time(a.cfg.Hang) {
			return op
		}
	}
	return nil
}

// blameInside turns a verdict into Inside, where the ranks at fault, or some of those that have
// all arrived, are inside of a call. It returns them.
func (a *Analyzer) blameInside(v *Verdict, s *stuck, blamed []*member, now Time) []*member {
	if s.peer != None || v.Reason != Missing && v.Reason != Slow {
		return blamed
	}
	among := blamed
	if v.Reason == Slow {
		among = s.waiting
	}
	var found []*member
	var entered *Operation // the first one
	for _, m := range among {
		op := a.inside(m, now)
		if op == nil {
			continue
		}
		found = append(found, m)
		if entered == nil || op.Seq < entered.Seq {
			entered = op
		}
	}
	if len(found) == 0 || v.Reason == Missing && len(found) < len(blamed) {
		return blamed
	}
	v.Reason, v.Seq, v.Kind = Inside, entered.Seq, entered.Kind
	v.isAll = len(found) == len(s.waiting)+len(s.missing)
	return found
}

func (v *Verdict) insideText(waited string) string {
	if v.isAll {
		return fmt.Sprintf("all %d ranks of communicator %s have entered %s %d and none has returned from it, for %s", len(v.Missing), v.Communicator, v.Kind, v.Seq, waited)
	}
	who := names(v.Missing) + " have"
	if len(v.Missing) == 1 {
		who = names(v.Missing) + " has"
		if v.Communicator.Size > 0 {
			who = fmt.Sprintf("rank %d of %d has", v.Missing[0].Rank, v.Communicator.Size)
		}
	}
	by := fmt.Sprintf("waited %s by %s", waited, ranks(v.Waiting, v.WaitingCount))
	if v.Cleared != 0 {
		by = "was waited for " + waited
	}
	return fmt.Sprintf("%s entered %s and did not return from it (%s)", who, v.operation(), by)
}
