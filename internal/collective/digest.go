// SPDX-License-Identifier: Apache-2.0

package collective

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// Digests are hashes of all collectives that a rank has issued to a communicator, in their order, up to each of those whose
// number is a multiple of Milestone, by number / Milestone modulo DigestCount: the upper 48 bits of the hash, and 16 of number /
// Milestone. 0: none. Ranks that issue the same collectives have the same digests (bpf/nccl/digest.h). Nil: not known.
type Digests []uint64

// DigestCount is the length of Digests.
const DigestCount = 32

// Set has the digest up to milestone n, of which the lower 16 bits are left out.
func (d *Digests) Set(n, digest uint64) {
	if len(*d) == 0 {
		*d = make(Digests, DigestCount)
	}
	(*d)[n%DigestCount] = digest&^0xffff | n&0xffff
}

// at is the digest up to milestone n. ok is false if it is not among them.
func (d Digests) at(n uint64) (digest uint64, ok bool) {
	if n == 0 {
		return 0, true
	}
	if len(d) != DigestCount {
		return 0, false
	}
	word := d[n%DigestCount]
	return word >> 16, word != 0 && uint16(word) == uint16(n)
}

// milestone returns the digest of a rank, which also has to have issued so many.
func (m *member) milestone(n uint64) (digest uint64, ok bool) {
	digest, ok = m.Digests.at(n)
	return digest, ok && n*Milestone <= m.Issued
}

// diverged finds out by digests whether ranks have issued different collectives that no rank shows any more, because newer ones
// have replaced them; nil: they have not, or it is not known. They have if digests differ at a milestone that not all ranks have
// completed, and are the same at one before it: earlier differences are ones that NCCL can complete.
func (c *communicator) diverged(members []*member, since Time) *stuck {
	if c.late {
		return nil
	}
	newest := uint64(0)
	for _, m := range members {
		newest = max(newest, m.Issued/Milestone)
	}
	for n := oldestMilestone(newest); n <= newest; n++ {
		groups := byDigest(members, n)
		if len(groups) < 2 {
			continue
		}
		same, ok := lastCommon(groups, n)
		if !ok || n*Milestone <= c.passed {
			return nil // all later ones differ, too
		}
		s := &stuck{comm: c, peer: None, seq: n * Milestone, first: max(same*Milestone, c.passed) + 1, since: since, waiting: members}
		if s.isMost = len(groups[0]) > len(groups[1]); s.isMost {
			groups = groups[1:]
		}
		s.mismatch = slices.Concat(groups...)
		slices.SortFunc(s.mismatch, func(a, b *member) int { return cmp.Compare(a.Rank, b.Rank) })
		return s
	}
	return nil
}

// byDigest groups ranks by their digest at a milestone, the largest group first; nil if it is the same for all that have one.
func byDigest(members []*member, n uint64) [][]*member {
	var groups map[uint64][]*member
	first, isKnown := uint64(0), false
	for _, m := range members {
		digest, ok := m.milestone(n)
		if !ok {
			continue
		}
		if !isKnown {
			first, isKnown = digest, true
		}
		if digest != first {
			groups = map[uint64][]*member{}
			break
		}
	}
	if groups == nil {
		return nil
	}
	for _, m := range members {
		if digest, ok := m.milestone(n); ok {
			groups[digest] = append(groups[digest], m)
		}
	}
	return slices.SortedFunc(maps.Values(groups), func(a, b []*member) int {
		return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a[0].Rank, b[0].Rank))
	})
}

// oldestMilestone is the first of which a rank may have a digest while another is at the newest.
func oldestMilestone(newest uint64) uint64 {
	return max(newest, DigestCount) - DigestCount + 1
}

// lastCommon returns the newest milestone before n of which all groups have a digest: it is the same, as n is the first at which
// they differ.
func lastCommon(groups [][]*member, n uint64) (uint64, bool) {
	for back := uint64(1); back <= min(n, DigestCount); back++ {
		isUnknown := func(g []*member) bool {
			return !slices.ContainsFunc(g, func(m *member) bool { _, ok := m.milestone(n - back); return ok })
		}
		if !slices.ContainsFunc(groups, isUnknown) {
			return n - back, true
		}
	}
	return 0, false
}

// divergedText: "rank 5 of 64 of communicator world (0x2a) has issued other collectives than most ranks: the first is one of 401 to 416".
func (v *Verdict) divergedText(waited string) string {
	has, others, first := "has", "other collectives than most ranks", fmt.Sprintf("one of %d to %d", v.First, v.Seq)
	if len(v.Missing) > 1 {
		has = "have"
	}
	if !v.isMost {
		others = "different collectives"
	}
	if v.First == v.Seq {
		first = fmt.Sprint(v.Seq)
	}
	return fmt.Sprintf("%s of %s %s issued %s: the first is %s (waited %s)", names(v.Missing), sized(v.Communicator), has, others, first, waited)
}
