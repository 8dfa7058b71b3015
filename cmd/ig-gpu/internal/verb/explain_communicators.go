// SPDX-License-Identifier: Apache-2.0

package verb

import (
	"fmt"
	"strings"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"

	"github.com/gpu-gadgets/gpu-gadgets/internal/format/screen"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

// buffers takes in a reading of what NCCL holds.
func (f *facts) buffers(ds datasource.DataSource, rows []datasource.Data) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []profile.CommunicatorMemory
	for _, row := range rows {
		all = append(all, profile.CommunicatorMemory{
			PID: small(ds, row, "proc.pid"), Communicator: text(ds, row, "communicator"), Name: text(ds, row, "name"),
			Phase: text(ds, row, "phase"), State: text(ds, row, "state"), Rank: signed(ds, row, "rank"), Size: signed(ds, row, "size"),
			Line: lineOf(ds, row), Kind: text(ds, row, "kind"), Bytes: int64(number(ds, row, "inuse_bytes")),
		})
	}
	f.nccl = profile.SumCommunicators(all)
}

// mostCommunicators are named; the others are added up.
const mostCommunicators = 5

// composeCommunicators says what NCCL holds for which communicator, and who made that.
func composeCommunicators(p *page, f *facts, ids string) {
	if len(f.nccl) == 0 {
		return
	}
	p.part = "NCCL's memory"
	var sum, rest int64
	var lines []string
	for n, c := range f.nccl {
		sum += c.Bytes
		if n >= mostCommunicators {
			rest += c.Bytes
			continue
		}
		lines = append(lines, screen.Clean(c.String()))
	}
	if rest > 0 {
		lines = append(lines, fmt.Sprintf("%s for %d others", profile.FormatBytes(rest), len(f.nccl)-mostCommunicators))
	}
	p.say("ig-gpu run "+f.vendor.memory+" --communicators on --pid "+ids, "NCCL has taken %s since the watch began and holds it:\n%s",
		profile.FormatBytes(sum), strings.Join(lines, "\n"))
}
