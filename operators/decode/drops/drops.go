// SPDX-License-Identifier: Apache-2.0

// Package drops reports, once at the end, what a gadget could not record. The counts
// themselves are the gadget's data source `drops` (bpf/program/drops.h); this operator is
// only for users who read the table.
package drops

import (
	"fmt"
	"sort"
	"strings"
	"sync"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/params"

	"github.com/gpu-gadgets/gpu-gadgets/internal/ig"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

const (
	dataSource = "drops"
	// early is before the filter and the limiter: of all rows.
	early = 8000
)

// Count is one reason's line.
type Count struct {
	Reason string
	Count  uint64
	Bytes  uint64
}

// Summary returns the line for the end of a run, and whether it is a warning. total is
// the number of calls or samples recorded; 0: unknown. The line is empty if nothing was
// dropped.
func Summary(counts []Count, total uint64) (line string, warn bool) {
	counts = append([]Count(nil), counts...)
	sort.Slice(counts, func(i, j int) bool { return counts[i].Reason < counts[j].Reason })
	var parts []string
	var others uint64 // but frees of memory that is in no row
	for _, c := range counts {
		if c.Reason != freedBefore {
			others += c.Count
		}
	}
	for _, c := range counts {
		if c.Count == 0 {
			continue
		}
		if others == 0 {
			return c.freedBefore(), false
		}
		parts = append(parts, c.describe(total))
		warn = warn || !IsExpected(c.Reason)
	}
	if len(parts) == 0 {
		return "", false
	}
	return "not recorded in full: " + strings.Join(parts, "; "), warn
}

// freedBefore is the reason of frees of memory that was allocated before the probes were attached.
const freedBefore = "freed_before_attach"

func (c Count) freedBefore() string {
	if c.Count == 1 {
		return "1 free was of memory allocated before ig-gpu attached; nothing is lost [" + freedBefore + "]"
	}
	return fmt.Sprintf("%d frees were of memory allocated before ig-gpu attached; nothing is lost [%s]", c.Count, freedBefore)
}

// describe returns one reason in words, with its share and its effect.
func (c Count) describe(total uint64) string {
	words := Words(c.Reason)
	text := fmt.Sprintf("%d %s", c.Count, words.What)
	if total > 0 && words.isCall {
		text += fmt.Sprintf(" (%s of all)", profile.FormatShare(c.Count, total+c.Count))
	}
	if c.Bytes > 0 {
		text += fmt.Sprintf(", %s in no row", profile.FormatBytes(int64(c.Bytes)))
	}
	return fmt.Sprintf("%s: %s [%s]", text, words.Effect, c.Reason)
}

// Operator prints the summary of a gadget that has the data source.
type Operator struct{}

// NewOperator returns the data operator.
func NewOperator() *Operator { return &Operator{} }

// Name implements operators.DataOperator.
func (*Operator) Name() string { return "drops" }

// Init implements operators.DataOperator.
func (*Operator) Init(*params.Params) error { return nil }

// GlobalParams implements operators.DataOperator.
func (*Operator) GlobalParams() api.Params { return nil }

// InstanceParams implements operators.DataOperator.
func (*Operator) InstanceParams() api.Params { return nil }

// Priority can be any: the operator only reads.
func (*Operator) Priority() int { return 9900 }

// InstantiateDataOperator skips gadgets without the data source.
func (*Operator) InstantiateDataOperator(gc operators.GadgetContext, _ api.ParamValues) (operators.DataOperatorInstance, error) {
	source, ok := gc.GetDataSources()[dataSource]
	if !ok {
		return nil, nil
	}
	reason, count, bytes := source.GetField("reason"), source.GetField("count"), source.GetField("bytes")
	if reason == nil || count == nil || bytes == nil {
		return nil, nil // another gadget's source of that name
	}
	i := &instance{latest: make(map[string]Count)}
	if err := i.count(gc.GetDataSources()); err != nil {
		return nil, err
	}
	err := source.Subscribe(func(_ datasource.DataSource, data datasource.Data) error {
		var c Count
		c.Reason, _ = reason.String(data)
		c.Count, _ = count.Uint64(data)
		c.Bytes, _ = bytes.Uint64(data)
		i.mu.Lock()
		i.latest[c.Reason] = c
		i.mu.Unlock()
		return nil
	}, 9900)
	if err != nil {
		return nil, fmt.Errorf("subscribe to %s: %w", dataSource, err)
	}
	return i, nil
}

// count adds up the recorded calls or samples, as the base of shares.
func (i *instance) count(sources map[string]datasource.DataSource) error {
	for source, name := range map[string]string{"allocs": "alloc_objects", "calls": "calls", "samples": "samples"} {
		ds := sources[source]
		if ds == nil || ds.Type() != datasource.TypeArray {
			continue
		}
		field := ds.GetField(name)
		if field == nil {
			continue
		}
		if err := ds.SubscribeArray(func(_ datasource.DataSource, all datasource.DataArray) error {
			total := uint64(0)
			for n := range all.Len() {
				value, _ := field.Uint64(all.Get(n))
				total += value
			}
			i.mu.Lock()
			i.total = total
			i.mu.Unlock()
			return nil
		}, early); err != nil {
			return fmt.Errorf("subscribe to %s: %w", source, err)
		}
	}
	return nil
}

type instance struct {
	mu       sync.Mutex
	latest   map[string]Count // by reason; counts only grow
	total    uint64           // calls or samples in the latest rows
	reported bool
}

func (*instance) Name() string { return "drops" }

func (*instance) Start(operators.GadgetContext) error { return nil }

func (*instance) Stop(operators.GadgetContext) error { return nil }

// PostStop runs after the last read of the counters.
func (i *instance) PostStop(gc operators.GadgetContext) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.reported {
		return nil
	}
	i.reported = true
	counts := make([]Count, 0, len(i.latest))
	for _, c := range i.latest {
		if c.Count = ig.Dropped(gc, c.Reason, c.Count); c.Count > 0 || c.Bytes > 0 {
			counts = append(counts, c)
		}
	}
	switch line, warn := Summary(counts, i.total); {
	case line == "":
	case warn:
		gc.Logger().Warn(line)
	default:
		gc.Logger().Info(line)
	}
	return nil
}

func (*instance) Close(operators.GadgetContext) error { return nil }
