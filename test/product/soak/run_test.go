// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"fmt"
	"io"
	"math"
	"net/http"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/loopback"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject/iggpu"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject/usage"
)

// run is a process of ig-gpu that traces the whole machine, with all that it exports.
type run struct {
	*iggpu.Run
	gadget         string
	metrics, pprof string // addresses
	lastTook       time.Duration
	lastLooked     time.Time
}

// state has what ig-gpu takes at a time.
type state struct {
	live, resident, mapMemory     float64 // MiB
	files, maps, links, goroutine float64
	cpu, work                     float64 // percent of a core, since the state before: of ig-gpu, of the workload
}

// quantities are compared; of those that are counted, a few more are no growth.
var quantities = []struct {
	name  string
	value func(state) float64
	slack float64 // 0: it is not compared
}{
	{"Go's heap after a collection, MiB", func(s state) float64 { return s.live }, 4},
	// Between two collections the heap grows to twice what lives, and a table of all rows is built.
	{"anonymous memory, MiB", func(s state) float64 { return s.resident }, 128},
	{"memory of eBPF maps, MiB", func(s state) float64 { return s.mapMemory }, 1},
	{"file descriptors", func(s state) float64 { return s.files }, 5},
	{"eBPF maps", func(s state) float64 { return s.maps }, 2},
	{"links", func(s state) float64 { return s.links }, 2},
	{"goroutines", func(s state) float64 { return s.goroutine }, 5},
	{"processor time, percent of a core", func(s state) float64 { return s.cpu }, 0},
	{"the workload's processor time, the same", func(s state) float64 { return s.work }, 0},
	// The machine may get slower for both.
	{"processor time, percent of the workload's", func(s state) float64 { return 100 * s.cpu / s.work }, 1},
}

// start starts a gadget on all processes, with everything that it sends.
func start(t *testing.T, gadget string, to *backends) *run {
	t.Helper()
	// Of a profile of the heap only the size is used. Its list of stacks grows in the course of an hour, and to print it took
	// a quarter of the processor time of py_stack.
	t.Setenv("GODEBUG", "memprofilerate=0")
	r := &run{gadget: gadget, metrics: loopback.FreeAddress(t), pprof: loopback.FreeAddress(t)}
	r.Run = iggpu.Start(t, gadget, "--pprof-addr", r.pprof, "--metrics-listen", r.metrics, "--metrics-otlp-endpoint", to.otlp,
		"--otlp-endpoint", to.otlp, "--otlp-logs", "--pyroscope-url", to.pyroscope, "--export-interval", "5s",
		"--forget-exited", "1m") // as a daemon's instance, which runs for weeks
	require.Eventually(t, func() bool { return r.scrape(t) != nil }, time.Minute, 100*time.Millisecond, "it does not serve metrics: %s", gadget)
	return r
}

// scrape returns the metrics; nil while nothing listens.
func (r *run) scrape(t *testing.T) []loopback.Series {
	t.Helper()
	all, err := loopback.Scrape(t, r.metrics)
	if err != nil {
		return nil
	}
	return append([]loopback.Series{{}}, all...)
}

// metric is the sum of a process's series.
func (r *run) metric(t *testing.T, name string, pid int) (sum float64) {
	t.Helper()
	for _, s := range r.scrape(t) {
		if s.Name == name && s.Has(fmt.Sprintf("process_pid=%q", strconv.Itoa(pid))) {
			sum += s.Value
		}
	}
	return sum
}

var (
	goroutines = regexp.MustCompile(`goroutine profile: total (\d+)`)
	heap       = regexp.MustCompile(`# HeapAlloc = (\d+)`)
)

// profiled is a number in one of Go's profiles of ig-gpu.
func (r *run) profiled(t *testing.T, profile string, field *regexp.Regexp) float64 {
	t.Helper()
	response, err := http.Get("http://" + r.pprof + "/debug/pprof/" + profile)
	require.NoError(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	match := field.FindSubmatch(text)
	require.NotNil(t, match, "%s", text)
	value, err := strconv.ParseFloat(string(match[1]), 64)
	require.NoError(t, err)
	return value
}

// apart is the time between two of the moments at which the heap is measured.
const apart = 300 * time.Millisecond

// look reads what it takes, and scrapes it, as Prometheus would. The heap is the least of so many moments: while
// rows are read, it has all of them once more.
func (r *run) look(t *testing.T, moments int) (s state) {
	t.Helper()
	require.NotNil(t, r.scrape(t), "%s does not serve metrics any more", r.gadget)
	pid := r.PID()
	memory, err := usage.Memory(pid, "RssAnon")
	require.NoError(t, err)
	s.resident = float64(memory) / (1 << 20)
	s.cpu = r.cpu(t)
	descriptors, err := usage.Descriptors(pid)
	require.NoError(t, err)
	s.files = float64(len(descriptors))
	for _, d := range descriptors {
		if d.Info["link_type"] != "" {
			s.links++
		}
	}
	maps, size, err := usage.Maps(pid)
	require.NoError(t, err)
	s.maps, s.mapMemory = float64(maps), float64(size)/(1<<20)
	s.goroutine = r.profiled(t, "goroutine?debug=1", goroutines)
	s.live = math.Inf(1)
	for n := range moments {
		if n > 0 {
			time.Sleep(apart)
		}
		s.live = min(s.live, r.profiled(t, "heap?gc=1&debug=1", heap)/(1<<20))
	}
	return s
}

// cpu is the part of a core that it took since it was last called, in percent.
func (r *run) cpu(t *testing.T) float64 {
	t.Helper()
	user, system, err := usage.CPU(r.PID())
	require.NoError(t, err)
	before, looked := r.lastTook, r.lastLooked
	r.lastTook, r.lastLooked = user+system, time.Now()
	return 100 * (r.lastTook - before).Seconds() / r.lastLooked.Sub(looked).Seconds()
}
