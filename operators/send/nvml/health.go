// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// healthInterval is the time between two readings, and how exact the time of an Xid error is.
	healthInterval = 5 * time.Second
	// healthKept is how long what happened to a GPU may be the cause of a hang.
	healthKept = 10 * time.Minute
	// maxBefell bounds what is kept of a GPU.
	maxBefell = 16
)

// harmful are the reasons of throttling that slow a rank down beyond what it is sold for; a
// power cap is normal.
var harmful = []string{"hw_slowdown", "sw_thermal", "hw_thermal", "hw_power_brake"}

// Health remembers what happened to GPUs: Xid errors and throttling, and which processes use them.
// It is safe for concurrent use.
type Health struct {
	now  func() time.Time
	stop chan struct{}
	done chan struct{}

	mu      sync.Mutex
	library Library
	gpus    map[string]*gpuHealth // by UUID
	byPID   map[uint32][]string
}

type gpuHealth struct {
	index     int
	xids      map[string]float64 // counts, by code
	isRead    bool               // what was counted before says nothing of when
	errors    []xidError
	throttled map[string]throttling // by reason
}

type xidError struct {
	code string
	at   time.Time
}

type throttling struct{ from, to time.Time }

// NewHealth opens the library and follows the GPUs until Close.
func NewHealth(open func() (Library, error)) (*Health, error) {
	library, err := openInTime(open)
	if err != nil {
		return nil, fmt.Errorf("query the driver for the state of GPUs: %w", err)
	}
	listen(library)
	h := &Health{now: time.Now, library: library, gpus: map[string]*gpuHealth{}, stop: make(chan struct{}), done: make(chan struct{})}
	first := make(chan struct{})
	go func() {
		defer close(h.done)
		h.read()
		close(first)
		ticker := time.NewTicker(healthInterval)
		defer ticker.Stop()
		for {
			select {
			case <-h.stop:
				return
			case <-ticker.C:
				h.read()
			}
		}
	}()
	select {
	case <-first:
	case <-time.After(answerTimeout):
	}
	return h, nil
}

// faultReader is a library that reads Xid errors and throttling alone, which is cheaper.
type faultReader interface{ Faults() []Point }

// read asks the driver without the lock: it may take long where a GPU has fallen off the bus,
// and a verdict must not wait for that.
func (h *Health) read() {
	var points []Point
	if l, ok := h.library.(faultReader); ok {
		points = l.Faults()
	} else {
		points = h.library.Read().Points
	}
	processes := h.library.Processes()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.take(points, processes)
}

func (h *Health) take(points []Point, processes []ProcessMemory) {
	now := h.now()
	for _, p := range points {
		if p.Metric != "gpu.xid_errors" && p.Metric != "gpu.throttled" || p.Device.Parent != "" {
			continue
		}
		g := h.of(p.Device)
		word := ""
		for _, l := range p.Labels {
			word = l.Value.AsString()
		}
		if p.Metric == "gpu.throttled" {
			g.throttle(word, p.Value > 0, now)
		} else if p.Value > g.xids[word] {
			if g.isRead {
				g.errors = append(g.errors, xidError{word, now})
				g.errors = g.errors[max(len(g.errors)-maxBefell, 0):]
			}
			g.xids[word] = p.Value
		}
	}
	h.byPID = map[uint32][]string{}
	for _, p := range processes {
		h.of(p.Device)
		h.byPID[p.PID] = append(h.byPID[p.PID], p.Device.UUID)
	}
	for _, g := range h.gpus {
		g.isRead = true
	}
}

func (h *Health) of(d Device) *gpuHealth {
	g := h.gpus[d.UUID]
	if g == nil {
		g = &gpuHealth{index: d.Index, xids: map[string]float64{}, throttled: map[string]throttling{}}
		h.gpus[d.UUID] = g
	}
	return g
}

func (g *gpuHealth) throttle(reason string, isOn bool, now time.Time) {
	if !isOn || !slices.Contains(harmful, reason) {
		return
	}
	t, known := g.throttled[reason]
	if !known || now.Sub(t.to) > 3*healthInterval {
		t.from = now
	}
	t.to = now
	g.throttled[reason] = t
}

// Of says what happened to the GPUs on which the driver lists the process, in the last ten minutes.
func (h *Health) Of(pid uint32) (all []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.now()
	for _, uuid := range h.byPID[pid] {
		g := h.gpus[uuid]
		for _, e := range g.errors {
			if ago := now.Sub(e.at); ago < healthKept {
				all = append(all, fmt.Sprintf("Xid %s on its GPU %d, %s earlier", e.code, g.index, ago.Round(time.Second)))
			}
		}
		var reasons []string
		for _, reason := range harmful {
			t, ok := g.throttled[reason]
			if !ok || now.Sub(t.to) >= healthKept {
				continue
			}
			if now.Sub(t.to) <= 2*healthInterval {
				reasons = append(reasons, fmt.Sprintf("%s for %s", reason, now.Sub(t.from).Round(time.Second)))
			} else {
				reasons = append(reasons, fmt.Sprintf("%s until %s earlier", reason, now.Sub(t.to).Round(time.Second)))
			}
		}
		if len(reasons) > 0 {
			all = append(all, fmt.Sprintf("its GPU %d is throttled (%s)", g.index, strings.Join(reasons, ", ")))
		}
	}
	return all
}

// Close ends the use of the library. If the driver does not answer, it stays open.
func (h *Health) Close() {
	close(h.stop)
	within(healthInterval, func() {
		<-h.done
		h.library.Close()
	})
}
