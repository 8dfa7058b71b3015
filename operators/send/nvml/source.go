// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/gpu-gadgets/gpu-gadgets/internal/export/label"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/labels"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/operators/send/metrics"
)

const (
	// fresh is how long a reading is reused: a scrape and a push at the same time
	// need not both query the driver, which takes milliseconds per GPU.
	fresh = 500 * time.Millisecond
	// settle is the time from the start until a gadget's probes are attached: a
	// process that starts earlier may have made calls before that.
	settle = 3 * time.Second
	// retryInterval is the least time between two attempts to open the library, while there is none.
	retryInterval = time.Minute
)

// Config of the source.
type Config struct {
	// Open opens the library; nvml.Open with the user's path.
	Open func() (Library, error)
	// Rows are the gadgets' current sums.
	Rows func() []metrics.Sample
	// Processes finds a process by its pid.
	Processes Processes
	// Info is called once if there is no library, and when it is there later.
	Info func(string)
}

// Processes finds processes. ProcFS implements it.
type Processes interface {
	// Process names a process that no gadget follows.
	Process(pid uint32) profile.Process
	// Start returns when it started, since boot; 0 if unknown.
	Start(pid uint32) time.Duration
	// Now returns the current time of the same clock.
	Now() time.Duration
}

// Source implements metrics.Source. The library is open while there are publishers.
type Source struct {
	cfg Config

	mu       sync.Mutex
	users    int
	attached time.Duration // when the first user's gadget has its probes
	library  Library
	reading  *query[Reading] // of library
	opening  bool            // in the background
	tried    time.Time       // to open the library
	said     bool
	checked  time.Time // when the driver was last queried
	at       time.Time // when the query for latest began
	latest   Reading
	parts    []Breakdown
	tracker  tracker
}

// NewSource returns the source.
func NewSource(cfg Config) *Source { return &Source{cfg: cfg} }

// acquire adds a user, and opens the library.
func (s *Source) acquire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users++; s.users == 1 {
		s.attached = s.cfg.Processes.Now() + settle
	}
	if s.library == nil && !s.opening {
		s.opened(openInTime(s.cfg.Open))
	}
}

// retry opens the library in the background of a scrape: its driver may be loaded later. mu is held.
func (s *Source) retry() {
	if s.opening || s.users == 0 || time.Since(s.tried) < retryInterval {
		return
	}
	s.opening = true
	go func() {
		library, err := s.cfg.Open()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.opening = false
		s.opened(library, err)
	}()
}

// opened takes the result of Open. Other errors than an absent driver do not fail a run either,
// because the gadgets do not need NVML. mu is held.
func (s *Source) opened(library Library, err error) {
	s.tried = time.Now()
	switch {
	case err != nil:
		if !s.said {
			s.said = true
			s.cfg.Info(fmt.Sprintf("no metrics of the GPUs themselves: %v", err))
		}
		return
	case s.users == 0: // the last one has ended in the meantime
		go library.Close()
		return
	case s.said:
		s.said = false
		s.cfg.Info("the GPUs' driver is loaded now: metrics of the GPUs themselves begin")
	}
	s.library = library
	s.reading = &query[Reading]{ask: library.Read, info: s.cfg.Info, missing: "there are no metrics of the GPUs themselves"}
	listen(library)
	attached := s.attached
	s.tracker = tracker{processes: map[uint64]*history{}, born: func(pid uint32) bool {
		return s.cfg.Processes.Start(pid) > attached
	}}
	s.checked, s.at = time.Time{}, time.Time{}
}

// release closes the library after the last user. If the driver does not answer, it stays open.
func (s *Source) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users--; s.users == 0 && s.library != nil {
		s.reading.close(s.library.Close)
		s.library, s.reading = nil, nil
	}
}

// read returns the latest reading and its parts by process: the driver's last one where it does not
// answer, and none where that is stale.
func (s *Source) read() (Reading, []Breakdown) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.library == nil {
		s.retry()
		return Reading{}, nil
	}
	if time.Since(s.checked) < fresh {
		return s.latest, s.parts
	}
	// The driver is read first: later allocations are then in the rows and make the
	// rest smaller, not larger.
	latest, at, ok := s.reading.get()
	s.checked = time.Now()
	switch {
	case !ok:
		s.at, s.latest, s.parts = time.Time{}, Reading{}, nil
	case at != s.at:
		s.at, s.latest = at, latest
		s.parts = s.tracker.update(latest.Processes, rowsByPID(s.cfg.Rows()), s.cfg.Processes.Process)
	}
	return s.latest, s.parts
}

// Breakdowns returns the processes with a context, for sinks.
func (s *Source) Breakdowns() []Breakdown {
	_, parts := s.read()
	return parts
}

func rowsByPID(samples []metrics.Sample) map[uint32]held {
	rows := map[uint32]held{}
	for _, sample := range samples {
		addHeld(rows, sample.Process, sample.Kind, sample.InuseBytes)
	}
	return rows
}

func addHeld(to map[uint32]held, p profile.Process, kind string, bytes int64) {
	h := to[p.PID]
	if h.process.ID != p.ID {
		h.labels = labels.Common{}
	}
	p.Labels = h.labels.Add(p.Labels)
	h.process = p
	switch kind {
	case "host": // pinned memory of the host
	case profile.KindTensor: // in the driver's rows already
	case "managed":
		h.managed += bytes
	default:
		h.explained += bytes
	}
	to[p.PID] = h
}

// Instrument implements metrics.Source.
func (s *Source) Instrument(meter metric.Meter) (func(), error) {
	s.acquire()
	instruments := map[string]metric.Float64Observable{}
	var observables []metric.Observable
	var errs []error
	add := func(m Metric) {
		var instrument metric.Float64Observable
		var err error
		unit, description := metric.WithUnit(m.Unit), metric.WithDescription(m.Description)
		if m.Sum {
			instrument, err = meter.Float64ObservableCounter(m.Name, unit, description)
		} else {
			instrument, err = meter.Float64ObservableGauge(m.Name, unit, description)
		}
		instruments[m.Name] = instrument
		observables = append(observables, instrument)
		errs = append(errs, err)
	}
	for _, m := range table {
		add(m)
	}
	for _, m := range processTable {
		add(m)
	}
	registration, err := meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		reading, parts := s.read()
		observe(o, instruments, reading, parts)
		return nil
	}, observables...)
	if err := errors.Join(append(errs, err)...); err != nil {
		s.release()
		return nil, fmt.Errorf("metrics of the GPUs: %w", err)
	}
	return func() {
		_ = registration.Unregister()
		s.release()
	}, nil
}

const (
	processUsage = "gpu.process.memory.usage"
	processParts = "gpu.process.memory.parts"
)

var processTable = []Metric{
	{Name: processUsage, Unit: "By", Description: "Memory that the driver counts for a process on a device"},
	{Name: processParts, Unit: "By", Description: "The same on all devices, by part: stacks, context, before_attach, unexplained; they add up to it"},
}

func observe(o metric.Observer, instruments map[string]metric.Float64Observable, reading Reading, parts []Breakdown) {
	for _, p := range reading.Points {
		o.ObserveFloat64(instruments[p.Metric], p.Value, metric.WithAttributes(append(p.Device.labels(), p.Labels...)...))
	}
	labels := map[uint32][]attribute.KeyValue{}
	for _, b := range parts {
		of := label.Process(b.Process)
		labels[b.Process.PID] = of
		for _, part := range []struct {
			name  string
			bytes int64
		}{{"stacks", b.Stacks}, {"context", b.Context}, {"before_attach", b.BeforeAttach}, {"unexplained", b.Unexplained}} {
			o.ObserveFloat64(instruments[processParts], float64(part.bytes),
				metric.WithAttributes(append(of[:len(of):len(of)], attribute.String("part", part.name))...))
		}
	}
	for _, p := range reading.Processes {
		of, ok := labels[p.PID]
		if !ok {
			continue // unknown to the driver
		}
		o.ObserveFloat64(instruments[processUsage], float64(p.Bytes),
			metric.WithAttributes(append(of[:len(of):len(of)], p.Device.labels()...)...))
	}
}
