// SPDX-License-Identifier: Apache-2.0

package export

import (
	"context"

	logsv1 "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	profilesv1 "go.opentelemetry.io/proto/otlp/collector/profiles/v1development"
	"google.golang.org/protobuf/proto"

	"github.com/gpu-gadgets/gpu-gadgets/internal/export/otlp"
	"github.com/gpu-gadgets/gpu-gadgets/internal/export/pyroscope"
	"github.com/gpu-gadgets/gpu-gadgets/internal/export/queue"
	"github.com/gpu-gadgets/gpu-gadgets/internal/export/series"
	"github.com/gpu-gadgets/gpu-gadgets/internal/export/window"
)

// Names of receivers in messages.
const (
	namePyroscope = "Pyroscope"
	nameOTLP      = "the OTLP receiver"
	nameLogs      = "the OTLP receiver (logs)"
)

// ids name them in metrics.
var ids = map[string]string{namePyroscope: "pyroscope", nameOTLP: "otlp", nameLogs: "otlp-logs"}

// receiver is a server with its queue. configure and window are called by one goroutine
// at a time.
type receiver interface {
	name() string
	configure(series.Config)
	window(window.Window)
	stats() queue.Stats
	// close sends the waiting items until ctx ends.
	close(ctx context.Context) queue.Stats
}

type pyroscopeReceiver struct {
	encoder pyroscope.Encoder
	queue   *queue.Queue[pyroscope.Request]
	warn    func(string, ...any)
}

func (*pyroscopeReceiver) name() string                            { return namePyroscope }
func (r *pyroscopeReceiver) configure(c series.Config)             { r.encoder.Series = c }
func (r *pyroscopeReceiver) stats() queue.Stats                    { return r.queue.Stats() }
func (r *pyroscopeReceiver) close(ctx context.Context) queue.Stats { return r.queue.Close(ctx) }

func (r *pyroscopeReceiver) window(w window.Window) {
	requests, err := r.encoder.Encode(w)
	if err != nil {
		// It is our bug; the window cannot be saved.
		r.warn("a window is lost: %v", err)
	}
	for _, request := range requests {
		r.queue.Put(request, request.Bytes)
	}
}

type otlpReceiver struct {
	encoder otlp.Encoder
	queue   *queue.Queue[*profilesv1.ExportProfilesServiceRequest]
}

func (*otlpReceiver) name() string                            { return nameOTLP }
func (r *otlpReceiver) configure(c series.Config)             { r.encoder.Series = c }
func (r *otlpReceiver) stats() queue.Stats                    { return r.queue.Stats() }
func (r *otlpReceiver) close(ctx context.Context) queue.Stats { return r.queue.Close(ctx) }

func (r *otlpReceiver) window(w window.Window) {
	for _, request := range r.encoder.Profiles(w) {
		r.queue.Put(request, int64(proto.Size(request)))
	}
}

// logSender sends events to the receiver of the OTLP profiles: refused allocations, and
// verdicts on waiting ranks.
type logSender struct {
	encoder otlp.Encoder
	queue   *queue.Queue[*logsv1.ExportLogsServiceRequest]
}

func (*logSender) name() string                            { return nameLogs }
func (l *logSender) configure(c series.Config)             { l.encoder.Series = c }
func (*logSender) window(window.Window)                    {}
func (l *logSender) stats() queue.Stats                    { return l.queue.Stats() }
func (l *logSender) close(ctx context.Context) queue.Stats { return l.queue.Close(ctx) }

func (l *logSender) put(request *logsv1.ExportLogsServiceRequest) {
	l.queue.Put(request, int64(proto.Size(request)))
}
