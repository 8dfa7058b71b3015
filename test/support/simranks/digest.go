// SPDX-License-Identifier: Apache-2.0

package simranks

import (
	"sort"

	"github.com/gpu-gadgets/gpu-gadgets/internal/collective"
)

// Digest is that of all collectives up to o; before is that without it. It is what the gadget computes (bpf/nccl/digest.h).
func Digest(before uint64, o collective.Operation) uint64 {
	s := o.Signature()
	digest := mix(before, uint64(s.Kind)|uint64(s.Reduction)<<8|uint64(uint32(s.Root))<<16)
	return mix(digest, o.Bytes())
}

func mix(digest, value uint64) uint64 {
	digest = (digest ^ value) * 0x9e3779b97f4a7c15
	return digest ^ digest>>29
}

// digests of a rank's collectives, as it issues them.
type digests struct {
	newest     uint64
	milestones []milestone
}

// milestone is the digest when a collective was issued whose number is a multiple of collective.Milestone.
type milestone struct {
	enter     collective.Time
	n, digest uint64
}

func (d *digests) add(o collective.Operation) {
	d.newest = Digest(d.newest, o)
	if o.Seq%collective.Milestone == 0 {
		d.milestones = append(d.milestones, milestone{o.Enter, o.Seq / collective.Milestone, d.newest})
	}
}

// at are those that the gadget has at a time.
func (d *digests) at(now collective.Time) (out collective.Digests) {
	end := sort.Search(len(d.milestones), func(i int) bool { return d.milestones[i].enter > now })
	for _, m := range d.milestones[max(0, end-collective.DigestCount):end] {
		out.Set(m.n, m.digest)
	}
	return out
}
