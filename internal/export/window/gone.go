// SPDX-License-Identifier: Apache-2.0

package window

import (
	"container/list"

	"github.com/gpu-gadgets/gpu-gadgets/internal/throttle"
)

// leave notes that a row is missing.
func (r *Recorder) leave(s *state) {
	its := r.gone[s.tenant]
	if its == nil {
		its = list.New()
		r.gone[s.tenant] = its
	}
	s.gone, s.missing = its.PushBack(s), 0
}

// back notes that a row is not missing any more.
func (r *Recorder) back(s *state) {
	if s.gone == nil {
		return
	}
	its := r.gone[s.tenant]
	its.Remove(s.gone)
	s.gone = nil
	if its.Len() == 0 {
		delete(r.gone, s.tenant)
	}
}

// forget drops missing rows beyond maxGone. Tenants with few of them lose none: those with more have the same number afterwards.
func (r *Recorder) forget() {
	share := throttle.EqualShare(r.gone, maxGone)
	for _, its := range r.gone {
		for its.Len() > share {
			s := its.Front().Value.(*state)
			if s.row.Values != s.sent {
				r.forgotten++
			}
			r.back(s)
			delete(r.rows, s.id)
		}
	}
}
