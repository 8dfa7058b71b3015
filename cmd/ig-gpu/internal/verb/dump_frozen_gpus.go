// SPDX-License-Identifier: Apache-2.0

package verb

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/attribute"

	"github.com/gpu-gadgets/gpu-gadgets/operators/send/nvml"
)

// idleBelow is the utilization, in percent, below which a GPU is called idle: that of the last
// second or so, in which other processes may have used it.
const idleBelow = 5

// load is how much a GPU that a process holds memory of was used.
type load struct {
	GPU  int `json:"gpu"`
	Busy int `json:"busy_percent"`
}

// addLoads adds to processes the load of their GPUs, where the vendor's library is there.
func addLoads(cfg Config, all []still) {
	library, err := openGPUs(cfg)
	if err != nil || library == nil {
		return
	}
	defer library.Close()
	reading := library.Read()
	for n := range all {
		all[n].GPUs = loadsOf(reading, all[n].PID)
	}
}

// loadsOf are those of a process's GPUs, by index. The load of a MIG device is not known.
func loadsOf(r nvml.Reading, pid uint32) (all []load) {
	for _, p := range r.Points {
		isGeneral := slices.ContainsFunc(p.Labels, func(kv attribute.KeyValue) bool {
			return kv.Key == "hw.gpu.task" && kv.Value.AsString() == "general"
		})
		if p.Metric != "hw.gpu.utilization" || !isGeneral {
			continue
		}
		if slices.ContainsFunc(r.Processes, func(m nvml.ProcessMemory) bool { return m.PID == pid && m.Device.UUID == p.Device.UUID }) {
			all = append(all, load{p.Device.Index, int(100*p.Value + 0.5)})
		}
	}
	slices.SortFunc(all, func(a, b load) int { return cmp.Compare(a.GPU, b.GPU) })
	return all
}

// describeLoads is a line; "" where nothing is known.
func describeLoads(all []load) string {
	if len(all) == 0 {
		return ""
	}
	var texts []string
	for _, l := range all {
		word := "busy"
		if l.Busy < idleBelow {
			word = "idle"
		}
		texts = append(texts, fmt.Sprintf("GPU %d is %s (%d %%)", l.GPU, word, l.Busy))
	}
	return "  " + strings.Join(texts, ", ") + "\n"
}
