// SPDX-License-Identifier: Apache-2.0

package live

import (
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/internal/format/top"
)

// Result has the contents of the screen, for programs: the rows of its view, and the status
// line of a run that has ended.
func (s *Screen) Result() ([]top.Value, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.model == nil {
		return nil, ""
	}
	return s.model.Values(), s.statusLine(time.Now(), true, 0).String()
}
