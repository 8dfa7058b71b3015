// SPDX-License-Identifier: Apache-2.0

package ranks

import (
	"fmt"
	"slices"

	"github.com/gpu-gadgets/gpu-gadgets/internal/collective"
)

// GPUs are those of a machine. It is safe for concurrent use.
type GPUs interface {
	// Of says what happened to the GPUs of a process in the last minutes, such as an Xid error, in
	// words that follow "rank 3: ".
	Of(pid uint32) []string
	Close()
}

// followGPUs from now on. Without NVML, verdicts say nothing about GPUs.
func (i *instance) followGPUs() {
	if i.cfg.GPUs == nil {
		return
	}
	if gpus, err := i.cfg.GPUs(); err == nil {
		i.gpus = gpus
	}
}

func (i *instance) forgetGPUs() {
	if i.gpus != nil {
		i.gpus.Close()
		i.gpus = nil
	}
}

// maxBefell bounds what a verdict says of GPUs.
const maxBefell = 4

// gpuEvents returns what happened to the GPUs of the communicator's ranks here, those at fault first.
func (i *instance) gpuEvents(v *collective.Verdict) (all []string) {
	if i.gpus == nil || v.Cleared != 0 {
		return nil
	}
	type member struct {
		rank int
		pid  uint32
	}
	var members []member
	for _, r := range i.rows {
		if r.Communicator.Hash == v.Communicator.Hash && r.Rank >= 0 && r.isCreating() == (v.Reason == collective.Creating) {
			members = append(members, member{r.Rank, r.Process.PID})
		}
	}
	isAtFault := func(m member) bool {
		return slices.ContainsFunc(v.Missing, func(c collective.Culprit) bool { return c.Rank == m.rank })
	}
	slices.SortFunc(members, func(a, b member) int {
		if isAtFault(a) != isAtFault(b) {
			if isAtFault(a) {
				return -1
			}
			return 1
		}
		return a.rank - b.rank
	})
	for _, m := range members {
		for _, text := range i.gpus.Of(m.pid) {
			if len(all) == maxBefell {
				return all
			}
			all = append(all, fmt.Sprintf("rank %d: %s", m.rank, text))
		}
	}
	return all
}
