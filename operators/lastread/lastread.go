// SPDX-License-Identifier: Apache-2.0

// Package lastread keeps the last rows of a run. Inspektor Gadget v0.55.0 reads
// the iterators of a gadget once more when the run ends, but closes them in Stop
// without waiting for that: on a busy machine the last interval is lost
// (pkg/operators/ebpf/ebpf.go, Stop: the links before wg.Wait). This operator's
// Stop comes before that one's and waits for the rows.
package lastread

import (
	"sync"
	"time"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/params"
)

const (
	annotation = "ebpf.iter.fetch-on-stop"
	// limit is how long to wait: naming the stacks of a full table takes a
	// second or two.
	limit = 10 * time.Second
	// slack is how long before our PreStop the rows may have come and still be
	// the last ones: the PreStop of operator ebpf, which asks for them, is earlier.
	slack = 10 * time.Millisecond
)

// Operator takes part in gadgets that are read when they end.
type Operator struct{}

// New returns the data operator.
func New() *Operator { return &Operator{} }

func (*Operator) Name() string               { return "lastread" }
func (*Operator) Init(*params.Params) error  { return nil }
func (*Operator) GlobalParams() api.Params   { return nil }
func (*Operator) InstanceParams() api.Params { return nil }

// Priority is the last: its Stop is the first, and rows have passed everybody.
func (*Operator) Priority() int { return 20000 }

// InstantiateDataOperator stays out where nothing is read at the end.
func (*Operator) InstantiateDataOperator(gc operators.GadgetContext, _ api.ParamValues) (operators.DataOperatorInstance, error) {
	i := &instance{came: map[string]time.Time{}}
	for _, source := range gc.GetDataSources() {
		if source.Annotations()[annotation] != "true" || source.Type() != datasource.TypeArray {
			continue
		}
		name := source.Name()
		if err := source.SubscribeArray(func(datasource.DataSource, datasource.DataArray) error {
			i.mu.Lock()
			i.came[name] = time.Now()
			i.mu.Unlock()
			return nil
		}, 20000); err != nil {
			return nil, err
		}
		i.sources = append(i.sources, name)
	}
	if len(i.sources) == 0 {
		return nil, nil
	}
	return i, nil
}

type instance struct {
	sources []string
	ending  time.Time

	mu   sync.Mutex
	came map[string]time.Time // when a source's rows came last
}

func (*instance) Name() string                        { return "lastread" }
func (*instance) Start(operators.GadgetContext) error { return nil }

func (i *instance) PreStop(operators.GadgetContext) error {
	i.ending = time.Now()
	return nil
}

func (i *instance) Stop(gc operators.GadgetContext) error {
	if i.ending.IsZero() { // the run has not started
		return nil
	}
	for !i.complete() {
		if time.Since(i.ending) > limit {
			gc.Logger().Warnf("the last rows may be missing: not read within %v", limit)
			return nil
		}
		time.Sleep(time.Millisecond) // nobody tells when an iterator has been read
	}
	return nil
}

func (*instance) Close(operators.GadgetContext) error { return nil }

func (i *instance) complete() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, name := range i.sources {
		if i.came[name].Before(i.ending.Add(-slack)) {
			return false
		}
	}
	return true
}
