// SPDX-License-Identifier: Apache-2.0

package ranks

import (
	"sync"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/internal/collective"
)

// Store has what the ranks of this node do now, of all runs, for metrics. The
// zero value is ready, and it is safe for concurrent use.
type Store struct {
	mu   sync.Mutex
	runs map[*storeRun]struct{}
}

// storeRun is the part of one run of the gadget.
type storeRun struct {
	store *Store
	ranks []collective.Status
	open  []collective.Verdict
	// toWall is added to the boot clock.
	toWall time.Duration
	now    collective.Time
}

// Publish is for programs that judge ranks without a run of the gadget. Times are by the wall
// clock. The returned function takes them out again.
func (s *Store) Publish(ranks []collective.Status, open []collective.Verdict, now collective.Time) func() {
	r := s.begin()
	s.mu.Lock()
	defer s.mu.Unlock()
	r.ranks, r.open, r.now = ranks, open, now
	return r.close
}

func (s *Store) begin() *storeRun {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.runs == nil {
		s.runs = map[*storeRun]struct{}{}
	}
	r := &storeRun{store: s}
	s.runs[r] = struct{}{}
	return r
}

func (r *storeRun) put(ranks []collective.Status, open []collective.Verdict, now collective.Time) {
	wall := time.Duration(time.Now().UnixNano())
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	r.ranks, r.open, r.now, r.toWall = ranks, open, now, wall-time.Duration(now)
}

func (r *storeRun) close() {
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	delete(r.store.runs, r)
}
