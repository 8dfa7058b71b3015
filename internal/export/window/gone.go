// SPDX-License-Identifier: Apache-2.0

package window

// leave notes that a row is missing.
func (r *Recorder) leave(s *state) { s.gone, s.missing = r.gone.Push(s.tenant, s), 0 }

// back notes that a row is not missing any more.
func (r *Recorder) back(s *state) {
	if s.gone != nil {
		r.gone.Remove(s.tenant, s.gone)
		s.gone = nil
	}
}

// forget drops missing rows beyond maxGone. Tenants with few of them lose none: those with more have the same number afterwards.
func (r *Recorder) forget() {
	for _, s := range r.gone.Excess(maxGone) {
		if s.row.Values != s.sent {
			r.forgotten++
		}
		r.back(s)
		delete(r.rows, s.id)
	}
}
