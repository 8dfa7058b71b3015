// SPDX-License-Identifier: Apache-2.0

package verb

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/holder"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
)

// facts are collected from the gadgets' rows of the processes.
type facts struct {
	pids     []uint32
	commands []string
	watch
	users     []uint32 // of the processes and their descendants, those that have the driver mapped
	hasPython bool
	vendor    vendor
	driver    int64                        // bytes that the vendor's driver counts; -1: not known
	used      map[uint32]map[string]uint64 // those by process and GPU
	failed    []string

	mu      sync.Mutex
	since   time.Duration     // for how long growth is counted
	windows [2]int            // readings in the second and in the last third
	places  map[string]*place // memory by frame
	peaks   peakFacts
	read    int // how often the memory's rows were read
	refused refusals
	waits   map[string]*waiting // calls by frame
	idle    []string
	verdict []string
	holders []holder.Verdict
	called  []deviceCalls
	nccl    []profile.CommunicatorMemory
	drops   map[string]map[string]uint64 // gadget → reason → count
}

func newFacts(pids []uint32, duration time.Duration) *facts {
	return &facts{
		vendor: nvidia, pids: pids, driver: -1, used: map[uint32]map[string]uint64{}, since: duration / 3, places: map[string]*place{}, waits: map[string]*waiting{}, drops: map[string]map[string]uint64{},
		watch: watch{duration: duration, watched: duration, began: time.Now(), ended: map[uint32]time.Duration{}},
	}
}

// place is a line that holds memory, in bytes.
type place struct {
	frame           string
	now, taken      uint64
	low             [2]uint64 // the least that it held in the second and in the last third of the watch
	held            uint64    // of now: released, by HIP's hipMemRelease
	rounding, apart uint64    // of tensors, with --waste: by rounding, and unused in segments they keep
	isTensor        bool
}

// waiting is a line that calls the driver.
type waiting struct {
	frame                 string
	launches, hostNS      uint64
	waitNS, waits, copied uint64
}

// valueOf is a field of a row; the zero value where there is none, or one of another type.
func valueOf[T any](ds datasource.DataSource, row datasource.Data, name string, read func(datasource.FieldAccessor, datasource.Data) (T, error)) (value T) {
	if field := ds.GetField(name); field != nil {
		value, _ = read(field, row)
	}
	return value
}

func text(ds datasource.DataSource, row datasource.Data, name string) string {
	return valueOf(ds, row, name, datasource.FieldAccessor.String)
}

func number(ds datasource.DataSource, row datasource.Data, name string) uint64 {
	return valueOf(ds, row, name, datasource.FieldAccessor.Uint64)
}

// small is a field of 32 bits, such as a process id.
func small(ds datasource.DataSource, row datasource.Data, name string) uint32 {
	return valueOf(ds, row, name, datasource.FieldAccessor.Uint32)
}

// signed is such a field that may be negative.
func signed(ds datasource.DataSource, row datasource.Data, name string) int32 {
	return valueOf(ds, row, name, datasource.FieldAccessor.Int32)
}

// lineOf is the frame to name: the program's own line.
func lineOf(ds datasource.DataSource, row datasource.Data) string {
	return cmp.Or(text(ds, row, "user_frame"), text(ds, row, "frame"))
}

// allocs takes in a reading of all rows of memory.
func (f *facts) allocs(ds datasource.DataSource, rows []datasource.Data) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.read++
	f.peaks.read(time.Now(), ds, rows)
	f.refused.retries.read(&f.peaks)
	for _, p := range f.places {
		p.now, p.taken, p.held, p.rounding, p.apart = 0, 0, 0, 0, 0
	}
	for _, row := range rows {
		frame, isTensor := lineOf(ds, row), text(ds, row, "kind") == "tensor"
		key := frame
		if isTensor {
			key = "tensor " + frame
		}
		p := f.places[key]
		if p == nil {
			p = &place{frame: frame, isTensor: isTensor}
			f.places[key] = p
		}
		p.now += number(ds, row, "inuse_bytes")
		p.taken += number(ds, row, "alloc_bytes")
		p.held += number(ds, row, "held_bytes")
		p.rounding += number(ds, row, "rounding_bytes")
		p.apart += number(ds, row, "fragmented_bytes")
	}
	f.lows(time.Since(f.begin()))
}

// lows keeps the least that places hold: what a step takes and gives back is no growth, and a
// reading may come anywhere in a step. The first third is left out, in which a process that starts
// takes its memory.
func (f *facts) lows(past time.Duration) {
	if past < f.duration/3 {
		return
	}
	window := 0
	if past >= f.duration*2/3 {
		window = 1
	}
	for _, p := range f.places {
		if f.windows[window] == 0 || p.now < p.low[window] { // 0 of one that was in no earlier reading
			p.low[window] = p.now
		}
	}
	f.windows[window]++
}

// isCompared: there were readings in both windows, without which nothing is known to have grown or not. A process that
// has ended holds nothing in the last.
func (f *facts) isCompared() bool { return !f.isOver() && f.windows[0] > 0 && f.windows[1] > 0 }

// growers are the places that hold more than before, the largest growth first.
func (f *facts) growers(tensors bool) []*place {
	if !f.isCompared() {
		return nil
	}
	return f.ranked(tensors, grown)
}

// growth is by how much the driver's memory has grown in sum: what one line has freed, another one may hold.
func (f *facts) growth() (sum int64) {
	for _, p := range f.places {
		if !p.isTensor {
			sum += grown(p)
		}
	}
	return max(sum, 0)
}

// calls takes in a reading of all rows of calls, which count from attach on.
func (f *facts) calls(ds datasource.DataSource, rows []datasource.Data) {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.waits)
	f.called = f.called[:0]
	for _, row := range rows {
		frame := lineOf(ds, row)
		w := f.waits[frame]
		if w == nil {
			w = &waiting{frame: frame}
			f.waits[frame] = w
		}
		calls, host := number(ds, row, "calls"), number(ds, row, "host_ns")
		w.hostNS += host
		operation := text(ds, row, "operation")
		f.called = append(f.called, deviceCalls{number(ds, row, "process"), operation, signed(ds, row, "device"), int64(calls)})
		isDone := operation == "wait" || signed(ds, row, "status") == 0 // a copy that fails waits for nothing
		if isDone && profile.IsWait(operation, text(ds, row, "direction"), text(ds, row, "api")) {
			w.waits += calls
			w.waitNS += host
		}
		switch operation {
		case "launch", "graph":
			w.launches += calls
		case "copy":
			w.copied += number(ds, row, "bytes")
		}
	}
}

// hangs are the verdicts on ranks that keep others waiting, or come late.
func (f *facts) hangs(ds datasource.DataSource, rows []datasource.Data) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, row := range rows {
		if s := text(ds, row, "text"); s != "" && text(ds, row, "event") != "cleared" && !slices.Contains(f.verdict, s) {
			f.verdict = append(f.verdict, s)
		}
	}
}

func (f *facts) dropsOf(gadget string) func(datasource.DataSource, []datasource.Data) {
	return func(ds datasource.DataSource, rows []datasource.Data) {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.drops[gadget] == nil {
			f.drops[gadget] = map[string]uint64{}
		}
		for _, row := range rows {
			f.drops[gadget][text(ds, row, "reason")] = number(ds, row, "count")
		}
	}
}

// ranked are places of one layer, the largest by value first.
func (f *facts) ranked(tensors bool, value func(*place) int64) (out []*place) {
	for _, p := range f.places {
		if p.isTensor == tensors && value(p) > 0 {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b *place) int {
		return cmp.Or(-cmp.Compare(value(a), value(b)), cmp.Compare(a.frame, b.frame))
	})
	return out
}

// tensorGrowth is by how many bytes PyTorch's tensors have grown, and where: what a line made instead
// of tensors that were freed since is no growth.
func (f *facts) tensorGrowth() (growers []*place, sum int64) {
	for _, p := range f.places {
		if p.isTensor && p.frame != stack.BeforeAttach {
			sum += grown(p)
		} else if p.isTensor { // it may be known late, and does not grow
			sum += min(grown(p), 0)
		}
	}
	growers = slices.DeleteFunc(f.growers(true), func(p *place) bool { return p.frame == stack.BeforeAttach })
	if len(growers) == 0 {
		return nil, 0
	}
	return growers, max(sum, 0)
}

func (f *facts) waiters(value func(*waiting) uint64) (out []*waiting) {
	for _, w := range f.waits {
		if value(w) > 0 {
			out = append(out, w)
		}
	}
	slices.SortFunc(out, func(a, b *waiting) int {
		return cmp.Or(-cmp.Compare(value(a), value(b)), cmp.Compare(a.frame, b.frame))
	})
	return out
}
