// SPDX-License-Identifier: Apache-2.0

package export

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
	logsv1 "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	profilesv1 "go.opentelemetry.io/proto/otlp/collector/profiles/v1development"
	"google.golang.org/protobuf/proto"

	"github.com/gpu-gadgets/gpu-gadgets/operators/export/otlp"
	"github.com/gpu-gadgets/gpu-gadgets/operators/export/pyroscope"
	"github.com/gpu-gadgets/gpu-gadgets/operators/export/queue"
	"github.com/gpu-gadgets/gpu-gadgets/operators/export/remote"
	"github.com/gpu-gadgets/gpu-gadgets/operators/export/series"
	"github.com/gpu-gadgets/gpu-gadgets/operators/export/window"
	"github.com/gpu-gadgets/gpu-gadgets/operators/profile"
)

// Names of receivers in messages.
const (
	namePyroscope = "Pyroscope"
	nameOTLP      = "the OTLP receiver"
	nameLogs      = "the OTLP receiver (logs)"
)

// ids name them in metrics.
var ids = map[string]string{namePyroscope: "pyroscope", nameOTLP: "otlp", nameLogs: "otlp-logs"}

// receiver is a server with its queue. configure and window are called by one
// goroutine at a time.
type receiver interface {
	name() string
	configure(series.Config)
	window(window.Window)
	stats() queue.Stats
	// close sends what waits until ctx ends.
	close(ctx context.Context) queue.Stats
}

// connect makes the receivers. What a server refuses for sure is an error; one that
// does not answer yet is only told of.
func (i *instance) connect(gc operators.GadgetContext) error {
	warn := func(format string, args ...any) { gc.Logger().Warnf("export: "+format, args...) }
	if i.pyroscope != nil {
		client := pyroscope.NewClient(i.pyroscope)
		i.release = append(i.release, client.Close)
		i.receivers = append(i.receivers, &pyroscopeReceiver{
			encoder: pyroscope.Encoder{Levels: i.inuse, Compat: i.compat},
			queue:   queue.New(queue.Config[pyroscope.Request]{Name: namePyroscope, Send: client.Push, MaxBytes: i.queueBytes, Warn: warn}),
			warn:    warn,
		})
		if err := i.check(warn, namePyroscope, paramPyroscope, i.pyroscope, client.Check); err != nil {
			return err
		}
	}
	if i.otlp != nil {
		client, err := otlp.NewClient(i.protocol, i.otlp)
		if err != nil {
			return fmt.Errorf("--%s: %w", paramOTLP, err)
		}
		i.release = append(i.release, client.Close)
		i.receivers = append(i.receivers, &otlpReceiver{
			encoder: otlp.Encoder{Levels: i.inuse},
			queue:   queue.New(queue.Config[*profilesv1.ExportProfilesServiceRequest]{Name: nameOTLP, Send: client.Profiles, MaxBytes: i.queueBytes, Warn: warn}),
		})
		if err := i.check(warn, nameOTLP, paramOTLP, i.otlp, client.Check); err != nil {
			return err
		}
		return i.connectLogs(gc, warn, client)
	}
	return nil
}

// maxLogBytes is room for thousands of refused allocations.
const maxLogBytes = 4 << 20

func (i *instance) connectLogs(gc operators.GadgetContext, warn func(string, ...any), client *otlp.Client) error {
	if !i.sendLogs || gc.GetDataSources()["ooms"] == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), checkTimeout)
	defer cancel()
	if !client.TakesLogs(ctx) {
		gc.Logger().Infof("export: %s does not take logs: refused allocations are not sent (--%s=false ends this message)", nameOTLP, paramLogs)
		return nil
	}
	i.logs = &logSender{queue: queue.New(queue.Config[*logsv1.ExportLogsServiceRequest]{
		Name: nameLogs, Send: client.Logs, MaxBytes: maxLogBytes, Warn: warn,
	})}
	i.receivers = append(i.receivers, i.logs)
	return nil
}

func (i *instance) check(warn func(string, ...any), name, param string, e *remote.Endpoint, ask func(context.Context) (unreachable, refused error)) error {
	if e.SendsSecretsInClear() {
		warn("%s is asked over http: everybody on the way can read the secrets", e.URL)
	}
	ctx, cancel := context.WithTimeout(context.Background(), checkTimeout)
	defer cancel()
	unreachable, refused := ask(ctx)
	if refused != nil {
		return fmt.Errorf("--%s %s: %w", param, e.URL, refused)
	}
	if unreachable != nil {
		warn("%s does not take anything yet, up to %s are kept until it does: %v", name, profile.FormatBytes(i.queueBytes), unreachable)
	}
	return nil
}

func (i *instance) register() {
	if i.cfg.Register == nil {
		return
	}
	for _, r := range i.receivers {
		i.release = append(i.release, i.cfg.Register(ids[r.name()], r.stats))
	}
}

// disconnect flushes all receivers at the same time.
func (i *instance) disconnect(limit time.Duration) map[string]queue.Stats {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	var mu sync.Mutex
	var wait sync.WaitGroup
	all := map[string]queue.Stats{}
	for _, r := range i.receivers {
		wait.Go(func() {
			stats := r.close(ctx)
			mu.Lock()
			defer mu.Unlock()
			all[r.name()] = stats
		})
	}
	wait.Wait()
	for _, release := range i.release {
		release()
	}
	i.release = nil
	return all
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
		// It is our mistake; the window cannot be saved.
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

// logSender sends refused allocations to where the OTLP profiles go.
type logSender struct {
	encoder otlp.Encoder
	queue   *queue.Queue[*logsv1.ExportLogsServiceRequest]
}

func (*logSender) name() string                            { return nameLogs }
func (l *logSender) configure(c series.Config)             { l.encoder.Series = c }
func (*logSender) window(window.Window)                    {}
func (l *logSender) stats() queue.Stats                    { return l.queue.Stats() }
func (l *logSender) close(ctx context.Context) queue.Stats { return l.queue.Close(ctx) }

func (l *logSender) put(o profile.OOM) {
	request := l.encoder.OOM(o)
	l.queue.Put(request, int64(proto.Size(request)))
}
