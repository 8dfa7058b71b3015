// SPDX-License-Identifier: Apache-2.0

package spans

import (
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
	"github.com/gpu-gadgets/gpu-gadgets/internal/throttle"
)

// report says something about a library, once, and about a few of each tenant: paths are its own to choose.
func (f *Follower) report(pid uint32, say func(string), library, text string) {
	if _, isKnown := f.reported[library]; isKnown || len(f.reported) >= maxReported {
		return
	}
	tenant := f.cfg.Processes.Tenant(pid)
	if throttle.HasRoomIn(f.reported, maxReported, func(_ string, of procmaps.Tenant) bool { return of == tenant }) {
		f.reported[library] = tenant
		say(text)
	}
}

// warn warns of the same once.
func (f *Follower) warn(text string) { f.warnOf(text, text) }

// warnOf warns of the same thing once, with the first text.
func (f *Follower) warnOf(what, text string) {
	if len(f.warned) < maxReported && !f.warned[what] {
		f.warned[what] = true
		f.cfg.Warn(text)
	}
}
