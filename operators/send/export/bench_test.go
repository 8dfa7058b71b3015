// SPDX-License-Identifier: Apache-2.0

package export

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"
	"time"

	pprof "github.com/google/pprof/profile"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/gpu-gadgets/gpu-gadgets/internal/export/otlp"
	"github.com/gpu-gadgets/gpu-gadgets/internal/export/pyroscope"
	"github.com/gpu-gadgets/gpu-gadgets/internal/export/remote"
	"github.com/gpu-gadgets/gpu-gadgets/internal/export/series"
	"github.com/gpu-gadgets/gpu-gadgets/internal/export/window"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile/fixture"
)

// BenchmarkWindow is the total cost of exporting on a busy node in one window of 10 s:
// the ten readings of 5,000 stacks of 200 processes, each in its own container and all of
// them changed, and encoding and sending the requests. It is the CPU time of this
// process, including the garbage collector and the server's reads.
//
//	%core/10s  the part of one core; the target is 2
//	x-pprof    size of the profiles compared with google/pprof; at most 1.1
func BenchmarkWindow(b *testing.B) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
	}))
	b.Cleanup(server.Close)
	endpoint, err := remote.New(remote.Config{URL: server.URL})
	if err != nil {
		b.Fatal(err)
	}
	push := pyroscope.NewClient(endpoint)
	b.Cleanup(push.Close)
	otel, err := otlp.NewClient(otlp.HTTP, endpoint)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(otel.Close)
	for _, inuse := range []bool{true, false} {
		b.Run(fmt.Sprintf("pyroscope/inuse=%v", inuse), func(b *testing.B) {
			encoder := &pyroscope.Encoder{Levels: series.Levels{Inuse: inuse}}
			busy := newBusy()
			ratio := besideReference(b, encoder, busy.window())
			busy.measure(b, func(w window.Window) (size int64) {
				requests, err := encoder.Encode(w)
				for _, r := range requests {
					size += r.Bytes
					err = errors.Join(err, push.Push(b.Context(), r))
				}
				if err != nil {
					b.Fatal(err)
				}
				return size
			})
			b.ReportMetric(ratio, "x-pprof")
		})
		b.Run(fmt.Sprintf("otlp/inuse=%v", inuse), func(b *testing.B) {
			encoder := &otlp.Encoder{Levels: series.Levels{Inuse: inuse}}
			busy := newBusy()
			encoder.Profiles(busy.window()) // excludes work that is done once
			busy.measure(b, func(w window.Window) (size int64) {
				for _, r := range encoder.Profiles(w) {
					size += int64(proto.Size(r))
					if err := otel.Profiles(b.Context(), r); err != nil {
						b.Fatal(err)
					}
				}
				return size
			})
		})
	}
}

// busy is the node.
type busy struct {
	rows     []profile.Row
	recorder *window.Recorder
	now      time.Time
}

const length = 10 * time.Second

func newBusy() *busy {
	n := &busy{rows: fixture.Large(5000).Rows, now: time.Unix(1_790_000_000, 0)}
	for i := range n.rows {
		n.rows[i].Process.ID = uint64(i % 200)
		n.rows[i].Process.Container = fmt.Sprintf("container-%d", i%200)
	}
	n.recorder = window.NewRecorder(profile.Memory, 0, length, n.now)
	return n
}

// window is ten readings, each with a change in every row.
func (n *busy) window() window.Window {
	for range 10 {
		n.recorder.Begin()
		for i := range n.rows {
			r := &n.rows[i]
			r.AllocBytes, r.AllocObjects = r.AllocBytes+4096, r.AllocObjects+1
			n.recorder.See(profile.RowID{Process: r.Process.ID, StackID: uint64(i), Kind: r.Kind, Device: r.Device}, r.Values, 0, func() profile.Row { return *r })
		}
		n.recorder.End()
	}
	n.now = n.now.Add(length)
	return n.recorder.Close(n.now)
}

func (n *busy) measure(b *testing.B, export func(window.Window) int64) {
	b.Helper()
	runtime.GC() // excludes earlier garbage
	size, windows, from := int64(0), 0, processorTime(b)
	for b.Loop() {
		size = export(n.window())
		windows++
	}
	spent := processorTime(b) - from
	b.ReportMetric(100*spent.Seconds()/float64(windows)/length.Seconds(), "%core/10s")
	b.ReportMetric(float64(size), "bytes/window")
}

// processorTime is that of all threads.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// besideReference reads our profiles with google/pprof and has it write them again.
func besideReference(b *testing.B, encoder *pyroscope.Encoder, w window.Window) float64 {
	b.Helper()
	requests, err := encoder.Encode(w)
	if err != nil {
		b.Fatal(err)
	}
	ours, theirs := 0, 0
	for _, r := range requests {
		for _, s := range r.Push.Series {
			raw := s.Samples[0].RawProfile
			p, err := pprof.ParseData(raw)
			if err != nil {
				b.Fatal(err)
			}
			var out bytes.Buffer
			if err := p.Write(&out); err != nil {
				b.Fatal(err)
			}
			ours, theirs = ours+len(raw), theirs+out.Len()
		}
	}
	return float64(ours) / float64(theirs)
}
