// SPDX-License-Identifier: Apache-2.0

package export

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	logsv1 "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	profilesv1 "go.opentelemetry.io/proto/otlp/collector/profiles/v1development"

	"github.com/gpu-gadgets/gpu-gadgets/internal/export/exporters"
	"github.com/gpu-gadgets/gpu-gadgets/internal/export/otlp"
	"github.com/gpu-gadgets/gpu-gadgets/internal/export/pyroscope"
	"github.com/gpu-gadgets/gpu-gadgets/internal/export/queue"
	"github.com/gpu-gadgets/gpu-gadgets/internal/export/remote"
	"github.com/gpu-gadgets/gpu-gadgets/internal/export/series"
	"github.com/gpu-gadgets/gpu-gadgets/internal/export/window"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

// Register lists the queue of a receiver until remove is called.
type Register func(name string, stats func() queue.Stats) (remove func())

// Publish is a Register for which the metrics publish the state of the queues.
func Publish(queues *exporters.Registry) Register {
	return func(name string, stats func() queue.Stats) func() {
		return queues.Add(name, func() exporters.Stats {
			s := stats()
			return exporters.Stats{
				Items: s.QueuedItems, Bytes: s.QueuedBytes, CapacityBytes: s.CapacityBytes,
				Sent: s.SentItems, Retries: s.Failures, Lost: s.Lost(), LostBytes: s.LostBytes,
			}
		})
	}
}

// Log receives a Sender's messages for the user.
type Log interface {
	Warnf(format string, args ...any)
	Infof(format string, args ...any)
}

// SenderConfig is the configuration of a Sender besides the parameters.
type SenderConfig struct {
	Register Register // may be nil
	Log      Log
	// Logs: refused allocations and verdicts are sent as well.
	Logs bool
	// NoProfiles: there are none, so only the receiver of logs is checked.
	NoProfiles bool
}

// Sender sends windows to the receivers that the parameters name. Each has a queue
// of its own. Many recorders may have one sender: Offer, Put and OOM are safe for
// concurrent use between Start and Close.
type Sender struct {
	*settings
	cfg SenderConfig

	receivers []receiver
	release   []func()   // of the connections, after the receivers
	logs      *logSender // nil: none

	started  bool
	room     chan struct{} // has one token while windows has one window
	windows  chan window.Window
	encoded  chan struct{} // closed when the encoder has ended
	finished atomic.Int64  // windows that it has encoded
	timeout  time.Duration // how long Put and Close wait for an encoder that finishes no window
}

// encodeTimeout is for an encoder that hangs. A window of a busy node takes 200 ms.
const encodeTimeout = 15 * time.Second

// NewSender checks that the receivers accept data. A refusal is an error; a server that
// does not answer yet is only a warning.
func NewSender(values api.ParamValues, cfg SenderConfig) (*Sender, error) {
	s, err := parse(values)
	if err != nil {
		return nil, err
	}
	return newSender(s, cfg)
}

func newSender(s *settings, cfg SenderConfig) (*Sender, error) {
	sender := &Sender{settings: s, cfg: cfg, room: make(chan struct{}, 1), windows: make(chan window.Window, 1),
		encoded: make(chan struct{}), timeout: encodeTimeout}
	for _, e := range []*remote.Endpoint{s.pyroscope, s.otlp} {
		if e != nil {
			e.WarnWith(func(text string) { sender.warn("%s: %s", e.URL.Redacted(), text) })
		}
	}
	if err := sender.connect(); err != nil {
		sender.disconnect(0)
		return nil, err
	}
	if cfg.Register != nil {
		for _, r := range sender.receivers {
			sender.release = append(sender.release, cfg.Register(ids[r.name()], r.stats))
		}
	}
	return sender, nil
}

// Enabled reports whether there is any receiver.
func (s *Sender) Enabled() bool { return s.enabled() }

// Interval is the length of a window.
func (s *Sender) Interval() time.Duration { return s.interval }

// TakesLogs reports whether OOM and Hang send anything.
func (s *Sender) TakesLogs() bool { return s.logs != nil }

// Start begins to encode. gpu returns the UUID of a process's CUDA device, "" if it is
// unknown; it may be nil.
func (s *Sender) Start(gpu func(profile.Process, int32) string) {
	s.started = true
	for _, r := range s.receivers {
		r.configure(series.Config{Cluster: s.cluster, Node: s.node, PIDs: s.pids, GPU: gpu})
	}
	go func() {
		defer close(s.encoded)
		for w := range s.windows {
			<-s.room
			for _, r := range s.receivers {
				r.window(w)
			}
			s.finished.Add(1)
		}
	}()
}

// Offer passes a window to the encoder if it is free, and never waits. close makes the
// window and is not called otherwise.
func (s *Sender) Offer(close func() window.Window) {
	select {
	case s.room <- struct{}{}:
		s.windows <- close()
	default:
	}
}

// Put waits until the encoder is free for the window. If the encoder hangs, the window is lost.
func (s *Sender) Put(w window.Window) {
	for {
		before := s.finished.Load() // many may wait, such as the nodes of gpu-exporter
		select {
		case s.room <- struct{}{}:
			s.windows <- w
			return
		case <-time.After(s.timeout):
		}
		if s.finished.Load() == before {
			s.warn("a window is lost: the encoder has finished none for %s", s.timeout)
			return
		}
	}
}

// OOM sends a refused allocation.
func (s *Sender) OOM(o profile.OOM) {
	if s.logs != nil {
		s.logs.put(s.logs.encoder.OOM(o))
	}
}

// Hang sends a verdict on ranks that wait for each other.
func (s *Sender) Hang(h profile.Hang) {
	if s.logs != nil {
		s.logs.put(s.logs.encoder.Hang(h))
	}
}

// Close encodes the remaining windows, tries to send all until the limit, and logs what
// was lost. If the encoder hangs, it is left behind.
func (s *Sender) Close(limit time.Duration) {
	if s.started {
		close(s.windows)
		select {
		case <-s.encoded:
		case <-time.After(s.timeout):
			s.warn("the last windows are lost: the encoder was not done within %s", s.timeout)
		}
	}
	for name, stats := range s.disconnect(limit) {
		if s.started && stats.Lost() > 0 {
			s.cfg.Log.Warnf("export: %s did not get %d of %d requests (%s): queue full %d, refused %d, run ended %d",
				name, stats.Lost(), stats.Lost()+stats.SentItems, profile.FormatBytes(stats.LostBytes), stats.LostFull, stats.LostRejected, stats.LostAtEnd)
		}
	}
}

func (s *Sender) warn(format string, args ...any) { s.cfg.Log.Warnf("export: "+format, args...) }

func (s *Sender) connect() error {
	if s.pyroscope != nil && !s.cfg.NoProfiles {
		client := pyroscope.NewClient(s.pyroscope)
		s.release = append(s.release, client.Close)
		s.receivers = append(s.receivers, &pyroscopeReceiver{
			encoder: pyroscope.Encoder{Levels: s.levels, Compat: s.compat, Apart: client.Refused},
			queue: queue.New(queue.Config[pyroscope.Request]{
				Name: namePyroscope, Send: client.Push, Split: pyroscope.Split, MaxBytes: s.queueBytes, Warn: s.warn,
			}),
			warn: s.warn,
		})
		if err := s.check(namePyroscope, paramPyroscope, s.pyroscope, client.Check); err != nil {
			return err
		}
	}
	if s.otlp != nil {
		client, err := otlp.NewClient(s.protocol, s.otlp)
		if err != nil {
			return fmt.Errorf("--%s: %w", paramOTLP, err)
		}
		s.release = append(s.release, client.Close)
		if s.cfg.NoProfiles {
			return s.connectLogs(client)
		}
		s.receivers = append(s.receivers, &otlpReceiver{
			encoder: otlp.Encoder{Levels: s.levels},
			queue:   queue.New(queue.Config[*profilesv1.ExportProfilesServiceRequest]{Name: nameOTLP, Send: client.Profiles, MaxBytes: s.queueBytes, Warn: s.warn}),
		})
		if err := s.check(nameOTLP, paramOTLP, s.otlp, client.Check); err != nil {
			return err
		}
		return s.connectLogs(client)
	}
	return nil
}

// maxLogBytes is room for thousands of refused allocations.
const maxLogBytes = 4 << 20

func (s *Sender) connectLogs(client *otlp.Client) error {
	if !s.sendLogs || !s.cfg.Logs {
		return nil
	}
	if s.cfg.NoProfiles {
		if err := s.check(nameLogs, paramOTLP, s.otlp, client.CheckLogs); err != nil {
			return err
		}
	} else {
		ctx, cancel := context.WithTimeout(context.Background(), checkTimeout)
		defer cancel()
		if !client.TakesLogs(ctx) {
			s.cfg.Log.Infof("export: %s does not accept logs: refused allocations and verdicts are not sent (--%s=false ends this message)", nameOTLP, paramLogs)
			return nil
		}
	}
	s.logs = &logSender{queue: queue.New(queue.Config[*logsv1.ExportLogsServiceRequest]{
		Name: nameLogs, Send: client.Logs, MaxBytes: maxLogBytes, Warn: s.warn,
	})}
	s.receivers = append(s.receivers, s.logs)
	return nil
}

func (s *Sender) check(name, param string, e *remote.Endpoint, ask func(context.Context) (unreachable, refused error)) error {
	if e.SendsSecretsInClear() {
		s.warn("%s is contacted over http: secrets are sent in plain text", e.URL)
	}
	ctx, cancel := context.WithTimeout(context.Background(), checkTimeout)
	defer cancel()
	unreachable, refused := ask(ctx)
	if refused != nil {
		return fmt.Errorf("--%s %s: %w", param, e.URL, refused)
	}
	if unreachable != nil {
		s.warn("%s does not accept data yet, up to %s are kept until it does: %v", name, profile.FormatBytes(s.queueBytes), unreachable)
	}
	return nil
}

// disconnect flushes all receivers at the same time.
func (s *Sender) disconnect(limit time.Duration) map[string]queue.Stats {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	var mu sync.Mutex
	var wait sync.WaitGroup
	all := map[string]queue.Stats{}
	for _, r := range s.receivers {
		wait.Go(func() {
			stats := r.close(ctx)
			mu.Lock()
			defer mu.Unlock()
			all[r.name()] = stats
		})
	}
	wait.Wait()
	for _, release := range s.release {
		release()
	}
	s.release = nil
	return all
}
