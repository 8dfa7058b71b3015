// SPDX-License-Identifier: Apache-2.0

// Package lastread keeps the last rows of a run. Inspektor Gadget v0.55.0 reads the
// iterators of a gadget once more when the run ends, but closes them in Stop without
// waiting for that: on a busy machine the last interval is lost
// (pkg/operators/ebpf/ebpf.go, Stop: the links before wg.Wait). This operator's Stop runs
// before that one and waits for the rows.
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
	// quiet is the required pause after rows that arrived after the end: they may be
	// from a read in progress, which the last read follows at once. Between two reads
	// there is only the kernel's iteration over a table. It is counted in turns of a
	// millisecond in which this goroutine ran: if it waits long for a CPU, so does the
	// reader.
	quiet = 150

	first, last = -1000000, 20000 // subscribers: before and after all others
)

// Operator takes part in gadgets that are read at their end.
type Operator struct{}

// New returns the data operator.
func New() *Operator { return &Operator{} }

func (*Operator) Name() string               { return "lastread" }
func (*Operator) Init(*params.Params) error  { return nil }
func (*Operator) GlobalParams() api.Params   { return nil }
func (*Operator) InstanceParams() api.Params { return nil }

// Priority is the last: its Stop runs first, and rows have passed all others.
func (*Operator) Priority() int { return last }

// InstantiateDataOperator skips gadgets that are not read at the end.
func (*Operator) InstantiateDataOperator(gc operators.GadgetContext, _ api.ParamValues) (operators.DataOperatorInstance, error) {
	i := &instance{reads: map[string]*read{}}
	for _, source := range gc.GetDataSources() {
		if source.Annotations()[annotation] != "true" || source.Type() != datasource.TypeArray {
			continue
		}
		r := &read{}
		if err := source.SubscribeArray(func(datasource.DataSource, datasource.DataArray) error {
			i.mu.Lock()
			r.passing = true
			i.mu.Unlock()
			return nil
		}, first); err != nil {
			return nil, err
		}
		if err := source.SubscribeArray(func(datasource.DataSource, datasource.DataArray) error {
			i.mu.Lock()
			r.passing, r.passed, r.quiet = false, time.Now(), 0
			i.mu.Unlock()
			return nil
		}, last); err != nil {
			return nil, err
		}
		i.reads[source.Name()] = r
	}
	if len(i.reads) == 0 {
		return nil, nil
	}
	return i, nil
}

// read is the state of a source's newest rows.
type read struct {
	passing bool      // they are on their way through the operators
	passed  time.Time // when they had passed
	quiet   int       // turns since then, of Stop
}

type instance struct {
	ending time.Time // the last read was not requested before it

	mu    sync.Mutex
	reads map[string]*read // by source
}

func (*instance) Name() string { return "lastread" }

func (*instance) Start(operators.GadgetContext) error { return nil }

// PreStop runs before that of operator ebpf, which requests the last read: that can be
// complete by the time of Stop.
func (i *instance) PreStop(operators.GadgetContext) error {
	i.ending = time.Now()
	return nil
}

// Stop waits. It is also called if a run could not start, without PreStop.
func (i *instance) Stop(gc operators.GadgetContext) error {
	if i.ending.IsZero() {
		return nil
	}
	for began := time.Now(); !i.complete(); {
		if time.Since(began) > limit {
			gc.Logger().Warnf("the last rows may be missing: not read within %v", limit)
			return nil
		}
		time.Sleep(time.Millisecond) // nothing reports when an iterator has been read
	}
	return nil
}

func (*instance) Close(operators.GadgetContext) error { return nil }

// complete reports whether the last rows of every source, requested between PreStop and
// Stop, have passed: some arrived after that began, followed by a pause. Each call is a
// turn.
func (i *instance) complete() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	all := true
	for _, r := range i.reads {
		if r.passing || r.passed.Before(i.ending) {
			all = false
			continue
		}
		r.quiet++
		all = all && r.quiet >= quiet
	}
	return all
}
