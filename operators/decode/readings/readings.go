// SPDX-License-Identifier: Apache-2.0

// Package readings decides which readings of a gadget's tables reach the other operators. Rows are sums
// since the start, so that a reading may be left out, but not the last one.
//
// Of a table with more than 4,096 rows only every second, third, … reading passes: to name a row and to
// write it takes 6 µs, and a tenant that fills a table must not use a core. The programs that iterate over such a
// table leave its rows out meanwhile (pause), since to copy them takes longer.
//
// The last rows of a run are kept. Inspektor Gadget v0.55.0 reads the iterators of a gadget once more
// when the run ends, but closes them in Stop without waiting for that: on a busy machine the last interval
// is lost (pkg/operators/ebpf/ebpf.go, Stop: the links before wg.Wait). This operator's Stop runs before
// that one and waits for the rows.
package readings

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/params"

	"github.com/gpu-gadgets/gpu-gadgets/internal/ig"
	"github.com/gpu-gadgets/gpu-gadgets/internal/ig/mapiter"
)

const (
	annotation = "ebpf.iter.fetch-on-stop"
	// pausesAnnotation is that of the source whose programs leave rows out.
	pausesAnnotation = "gpu-gadgets.readings.pauses"
	// limit is how long to wait: naming the stacks of a full table takes a
	// second or two.
	limit = 10 * time.Second
	// quiet is the required pause after rows that arrived after the end: they may be
	// from a read in progress, which the last read follows at once. Between two reads
	// there is only the kernel's iteration over a table. It is counted in turns of a
	// millisecond in which this goroutine ran: if it waits long for a CPU, so does the
	// reader.
	quiet = 150

	// rowsPerSecond may pass; a reading with more is followed by a pause.
	rowsPerSecond = 4096
	// longest is the longest pause; what ended processes had is deleted after more (decode/reap).
	longest = 5 * time.Second
	// early is how much before the end of a pause a reading passes: timers are not exact.
	early = 100 * time.Millisecond

	first, last = -3000000, 20000 // subscribers: before all others, which may read the rows, and after them
)

// Operator takes part in gadgets that are read at their end.
type Operator struct{}

// New returns the data operator.
func New() *Operator { return &Operator{} }

func (*Operator) Name() string               { return "readings" }
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
		if source.Annotations()[pausesAnnotation] == "true" {
			r.pause = &pause{}
		}
		if err := source.SubscribeArray(func(_ datasource.DataSource, rows datasource.DataArray) error {
			if !i.begin(r, rows.Len(), time.Now()) {
				return datasource.ErrDiscard
			}
			return nil
		}, first); err != nil {
			return nil, err
		}
		if err := source.SubscribeArray(func(_ datasource.DataSource, rows datasource.DataArray) error {
			i.end(r, rows.Len(), time.Now())
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
	began   time.Time // when they came
	rows    int       // so many came; filters may take some out
	next    time.Time // when the next ones may pass
	passing bool      // they are on their way through the operators
	passed  time.Time // when they had passed
	quiet   int       // turns since then, of Stop
	pause   *pause    // nil: its programs have none
}

type instance struct {
	ig.Failure
	mu     sync.Mutex
	ending time.Time        // the last read was not requested before it
	reads  map[string]*read // by source
}

// begin reports whether so many rows that come now pass.
func (i *instance) begin(r *read, rows int, now time.Time) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if r.pause.leftOut() || i.ending.IsZero() && now.Before(r.next) {
		return false
	}
	r.passing, r.began, r.rows = true, now, rows
	return true
}

// end is called when so many rows have passed: more than came where another operator reads them.
func (i *instance) end(r *read, rows int, now time.Time) {
	i.mu.Lock()
	defer i.mu.Unlock()
	r.passing, r.passed, r.quiet = false, now, 0
	r.next = r.began
	if rows = max(rows, r.rows); rows > rowsPerSecond {
		r.next = r.began.Add(min(time.Duration(rows)*time.Second/rowsPerSecond, longest) - early)
		if i.ending.IsZero() {
			_ = r.pause.until(ig.SinceBoot() + r.next.Sub(now) - early) // else all are read
		}
	}
}

func (*instance) Name() string { return "readings" }

func (i *instance) Start(gc operators.GadgetContext) error { return i.Started(gc, i.start(gc)) }

func (i *instance) start(gc operators.GadgetContext) error {
	m, err := ig.Map(gc, pauseMap)
	if errors.Is(err, ig.ErrAbsent) || mapiter.Refused() { // such programs run in user space, which counts nothing
		return nil
	}
	if err != nil {
		return err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, r := range i.reads {
		if r.pause != nil {
			r.pause.m = m
		}
	}
	return nil
}

// PreStop runs before that of operator ebpf, which requests the last read: that can be
// complete by the time of Stop.
func (i *instance) PreStop(operators.GadgetContext) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.ending = time.Now()
	for _, r := range i.reads {
		if err := r.pause.until(0); err != nil {
			return fmt.Errorf("end the pause between readings: %w", err)
		}
	}
	return nil
}

// Stop waits. It is also called if a run could not start, without PreStop.
func (i *instance) Stop(gc operators.GadgetContext) error {
	if !i.isEnding() {
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

func (i *instance) isEnding() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return !i.ending.IsZero()
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
