// SPDX-License-Identifier: Apache-2.0

// Package drops tells the user, once and at the end, what a gadget could not
// record. The counts themselves are the gadget's data source `drops`
// (bpf/program/drops.h); this operator is only for users who read the table.
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
)

const dataSource = "drops"

// expected are reasons that are part of a normal run: they are reported without
// raising an alarm.
var expected = map[string]bool{"freed_before_attach": true, "python_thread_unknown": true, "process_unreadable": true}

// Count is one reason's line.
type Count struct {
	Reason string
	Count  uint64
	Bytes  uint64
}

// Summary is the line for the end of a run, and whether it deserves a warning.
// It is empty when nothing was dropped.
func Summary(counts []Count) (line string, warn bool) {
	counts = append([]Count(nil), counts...)
	sort.Slice(counts, func(i, j int) bool { return counts[i].Reason < counts[j].Reason })
	var parts []string
	for _, c := range counts {
		if c.Count == 0 {
			continue
		}
		part := fmt.Sprintf("%s %d×", c.Reason, c.Count)
		if c.Bytes > 0 {
			part += fmt.Sprintf(" (%d bytes in no row)", c.Bytes)
		}
		parts = append(parts, part)
		warn = warn || !expected[c.Reason]
	}
	if len(parts) == 0 {
		return "", false
	}
	return "not recorded in full: " + strings.Join(parts, ", "), warn
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

// InstantiateDataOperator stays out of gadgets without the data source.
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

type instance struct {
	mu     sync.Mutex
	latest map[string]Count // by reason; counts only grow
	told   bool
}

func (*instance) Name() string { return "drops" }

func (*instance) Start(operators.GadgetContext) error { return nil }

func (*instance) Stop(operators.GadgetContext) error { return nil }

// PostStop runs after the last read of the counters.
func (i *instance) PostStop(gc operators.GadgetContext) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.told {
		return nil
	}
	i.told = true
	counts := make([]Count, 0, len(i.latest))
	for _, c := range i.latest {
		counts = append(counts, c)
	}
	switch line, warn := Summary(counts); {
	case line == "":
	case warn:
		gc.Logger().Warn(line)
	default:
		gc.Logger().Info(line)
	}
	return nil
}

func (*instance) Close(operators.GadgetContext) error { return nil }
