// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/internal/ig"
	"github.com/gpu-gadgets/gpu-gadgets/internal/tracer"
)

const (
	// slot is how long a window is. Shorter ones make better estimates of the same part of
	// the time; but threads are slow in the first calls after probes were attached or detached.
	slot = 5 * time.Millisecond
	// lead is from writing a gate to its beginning.
	lead = 50 * time.Microsecond
	// inflight is how long a window's last calls may take. What takes longer is lost, and
	// counted by its next call (call_not_returned).
	inflight = 5 * time.Millisecond
)

// Prober attaches and detaches; tracer.Tracer does.
type Prober interface {
	SetIntermittent(cookies []uint32) error
	Resume(cookies []uint32) (io.Closer, error)
	SetAttached(library string, attached bool)
}

// windowValue mirrors struct window_gate of bpf/launch/windows.h.
type windowValue struct {
	BeginBootNS, EndBootNS uint64
	Number, Weight         uint32
}

// windows opens one in each period.
type windows struct {
	maps    Maps
	prober  Prober
	plan    plan
	from    time.Duration // since boot: when the present period began
	number  uint32
	opened  int // windows since the last look
	missed  uint32
	pace    pace
	witness witness
	every   time.Duration // between weighings
	weighed time.Duration // since boot: when the last was
	closing chan struct{} // bounds how many are being detached
}

func newWindows(m Maps, p Prober) *windows {
	return &windows{maps: m, prober: p, plan: plan{slots: 1}, pace: pace{byThread: m.ByThread}, closing: make(chan struct{}, 8)}
}

// sleepUntil returns false when the context has ended.
func sleepUntil(ctx context.Context, at time.Duration) bool {
	d := at - ig.SinceBoot()
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// follow changes the plan: at the end of the present period. A function's calls count as
// those of windows from exactly then on, and its probes go a moment later; and the other
// way round when it is followed all of the time again.
func (w *windows) follow(ctx context.Context, next plan) error {
	now := ig.SinceBoot()
	if w.plan.slots <= 1 {
		w.from = now + time.Millisecond
		w.number += w.number & 1 // a pair of windows is of one plan
	}
	for _, api := range next.apis {
		if slices.Contains(w.plan.apis, api) {
			continue
		}
		if err := w.maps.Since.Put(api, uint64(max(w.from, now))); err != nil {
			return fmt.Errorf("begin windows: %w", err)
		}
	}
	if !slices.Equal(next.apis, w.plan.apis) {
		sleepUntil(ctx, w.from)
		if err := w.prober.SetIntermittent(next.apis); err != nil {
			for _, api := range next.apis {
				_ = w.maps.Since.Put(api, uint64(0))
			}
			return err
		}
	}
	for _, api := range w.plan.apis {
		if slices.Contains(next.apis, api) {
			continue
		}
		if err := w.maps.Since.Put(api, uint64(0)); err != nil {
			return fmt.Errorf("end windows: %w", err)
		}
	}
	w.plan = next
	return nil
}

// end follows all calls of all functions from now on, whatever has failed before.
func (w *windows) end(all map[uint32]bool) error {
	w.plan = plan{slots: 1}
	err := w.prober.SetIntermittent(nil)
	if errors.Is(err, tracer.ErrNoWindows) {
		err = nil // then there were none
	}
	for api := range all {
		if e := w.maps.Since.Put(api, uint64(0)); e != nil {
			err = errors.Join(err, fmt.Errorf("end windows: %w", e))
		}
	}
	return err
}

// factor is by how much more a call in a window counts.
func (w *windows) factor() float64 {
	if f, _, known := w.witness.factor(); known {
		return f
	}
	return w.pace.factor()
}

// doubt is the part of a sum that may be wrong by the factor: two standard deviations.
func (w *windows) doubt() float64 {
	if _, deviation, known := w.witness.factor(); known {
		return min(2*deviation, unknownDoubt)
	}
	return w.pace.doubt()
}

// loss is the part of their time that threads lose in a window.
func (w *windows) loss() float64 {
	f, _, _ := w.witness.factor()
	return max(1-1/f, 0)
}

// period is one of the plan, with its window. It returns when the window has ended and
// what remains of the period is below the time that a change of plan takes.
func (w *windows) period(ctx context.Context) error {
	length := time.Duration(w.plan.slots) * slot
	end := w.from + length
	defer func() { w.from = end }()
	if now := ig.SinceBoot(); now > end { // this machine has stood still
		missed := (now-w.from)/length + 1
		w.missed += uint32(missed)
		end = w.from + missed*length
		return nil
	}
	at := w.from + time.Duration(rand.IntN(int(w.plan.slots)))*slot
	if at-ig.SinceBoot() > weighingTakes {
		if err := w.weigh(ctx); err != nil {
			return err
		}
	}
	if !sleepUntil(ctx, at) {
		return nil
	}
	open, err := w.prober.Resume(nil)
	if err != nil {
		return fmt.Errorf("attach for a window: %w", err)
	}
	// Attached later than planned, a window is as long, so that each moment is as
	// likely to be in one.
	weight := w.pace.round(float64(w.plan.slots*(1+min(w.missed, 8))) * w.factor())
	w.missed = 0
	w.pace.begin()
	look := w.look()
	begin := ig.SinceBoot() + lead
	which := w.number & 1
	err = w.maps.Inflight.Put(which, uint64(0))
	if err == nil {
		err = w.maps.Gates.Put(which, windowValue{uint64(begin), uint64(begin + slot), w.number, weight})
	}
	if err != nil {
		open.Close()
		return fmt.Errorf("open a window: %w", err)
	}
	sleepUntil(ctx, begin+slot)
	w.pace.end()
	w.witness.windows.add(look())
	for until := begin + slot + inflight; w.inflight(which) > 0 && ig.SinceBoot() < until; {
		time.Sleep(200 * time.Microsecond)
	}
	w.number++
	w.opened++
	w.closing <- struct{}{}
	go func() {
		open.Close()
		<-w.closing
	}()
	// Where periods are too short for a weighing, some are missed, and the next one counts
	// for them.
	if end-ig.SinceBoot() > weighingTakes || length < 2*weighingTakes {
		if err := w.weigh(ctx); err != nil {
			return err
		}
	}
	sleepUntil(ctx, end-2*time.Millisecond)
	return nil
}

// weigh probes the witness alone for a while, if it is time for that.
func (w *windows) weigh(ctx context.Context) error {
	if len(w.witness.apis) == 0 || ig.SinceBoot()-w.weighed < w.every {
		return nil
	}
	w.weighed = ig.SinceBoot()
	before := map[uint32]uint64{}
	for _, api := range w.witness.apis {
		before[api] = w.maps.cost([]uint32{api}).Hits
	}
	sleepUntil(ctx, w.weighed+settling)
	w.pace.took()
	from := ig.SinceBoot()
	sleepUntil(ctx, from+control)
	ran, _ := w.pace.took()
	seconds := (ig.SinceBoot() - from).Seconds()
	open, err := w.prober.Resume(w.witness.apis)
	if err != nil {
		return fmt.Errorf("attach for a weighing: %w", err)
	}
	sleepUntil(ctx, ig.SinceBoot()+warming)
	w.pace.took()
	from, look := ig.SinceBoot(), w.look()
	sleepUntil(ctx, from+weighing)
	probed, charged := w.pace.took()
	w.witness.busy.add(ran, seconds, probed, (ig.SinceBoot() - from).Seconds(), charged)
	w.witness.alone.add(look())
	open.Close()
	for api, hits := range before {
		w.witness.hits[api] += float64(w.maps.cost([]uint32{api}).Hits - hits)
	}
	return nil
}

// look returns what the witness was called, and all functions in windows were charged with
// in ns, until it is called, and the seconds until then.
func (w *windows) look() func() (calls, charged, seconds float64) {
	all := append(slices.Clone(w.plan.apis), returns)
	from, calls, charged := time.Now(), w.maps.cost(w.witness.apis).Hits, w.maps.cost(all).NS
	return func() (float64, float64, float64) {
		return float64(w.maps.cost(w.witness.apis).Hits - calls), float64(w.maps.cost(all).NS - charged), time.Since(from).Seconds()
	}
}

func (w *windows) inflight(which uint32) int64 {
	var calls int64
	if err := w.maps.Inflight.Lookup(which, &calls); err != nil {
		return 0
	}
	return calls
}

// wait is for the last windows to be detached.
func (w *windows) wait() {
	w.pace.close()
	for range cap(w.closing) {
		w.closing <- struct{}{}
	}
}
