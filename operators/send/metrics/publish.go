// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/resource"

	"github.com/gpu-gadgets/gpu-gadgets/internal/export/exporters"
	"github.com/gpu-gadgets/gpu-gadgets/internal/export/label"
	"github.com/gpu-gadgets/gpu-gadgets/internal/export/listen"
)

const (
	keyCluster = "k8s.cluster.name"
	keyNode    = "k8s.node.name"

	// exportTimeout is for one OTLP push.
	exportTimeout = 10 * time.Second

	// healthPath is for probes. A probe that read /metrics would be a reader: it would take the
	// last values of ended processes from Prometheus.
	healthPath = "/healthz"
)

// settings are the parameters, checked.
type settings struct {
	listen   string // host:port of the scrape endpoint; "" for none
	protect  listen.Options
	handler  func(prometheus.Gatherer) http.Handler // of scrapes; nil: all readers see everything
	endpoint *url.URL                               // of the OTLP receiver; nil for none
	interval time.Duration
	timeout  time.Duration // of one push
	cluster  string
	compat   bool
	nodes    bool          // the series are from several nodes
	idle     time.Duration // from when on holders are idle; 0: not reported
	frozen   time.Duration // from when on processes are frozen; 0: not reported
}

// node is the Kubernetes node as the chart's downward API gives it; elsewhere the
// variable is not set, and scrapers identify the machine by its address.
func node() string { return os.Getenv("NODE_NAME") }

func newResource(cluster string, hasNodes bool) *resource.Resource {
	host, _ := os.Hostname()
	attributes := []attribute.KeyValue{
		attribute.String("service.name", "gpu-gadgets"),
		// Two gadgets on one node push the same series otherwise.
		attribute.String("service.instance.id", label.Valid(host)+":"+strconv.Itoa(os.Getpid())),
	}
	if cluster != "" {
		attributes = append(attributes, attribute.String(keyCluster, label.Valid(cluster)))
	}
	if n := node(); n != "" && !hasNodes {
		attributes = append(attributes, attribute.String(keyNode, label.Valid(n)))
	}
	return resource.NewSchemaless(attributes...)
}

// publisher has the scrape endpoint and the push while gadgets run.
type publisher struct {
	stops []func(context.Context) error
	push  *sdkmetric.MeterProvider
	addr  net.Addr // of the scrape endpoint
}

// newPublisher opens the endpoints of the settings. warn receives failed pushes and refused connections.
func newPublisher(s settings, c *content, warn func(string)) (*publisher, error) {
	c.compat, c.cluster, c.labels.hasNodes = s.compat, s.cluster, s.nodes
	p := &publisher{}
	if s.listen != "" {
		if err := p.serve(s, c, warn); err != nil {
			return nil, err
		}
	}
	if s.endpoint != nil {
		if err := p.pushTo(s, c, warn); err != nil {
			return nil, errors.Join(err, p.close(context.Background()))
		}
	}
	return p, nil
}

// serve answers GET /metrics and GET /healthz.
func (p *publisher) serve(s settings, c *content, warn func(string)) error {
	registry := prometheus.NewRegistry()
	// ig-gpu's own cost.
	registry.MustRegister(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(registry), otelprometheus.WithoutScopeInfo(),
		otelprometheus.WithoutTargetInfo(), otelprometheus.WithResourceAsConstantLabels(attribute.NewAllowKeysFilter(keyCluster, keyNode)))
	if err != nil {
		return fmt.Errorf("make Prometheus metrics: %w", err)
	}
	keep, handler := time.Duration(0), s.handler
	if handler == nil {
		handler = everything
	} else {
		keep = sharedKeep
	}
	provider, stop, err := c.provider(exporter, s.cluster, keep)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", handler(registry))
	mux.HandleFunc("GET "+healthPath, healthy)
	s.protect.Open, s.protect.Warn = healthPath, warn
	server, err := listen.Serve(s.listen, mux, s.protect)
	if err != nil {
		stop()
		return errors.Join(fmt.Errorf("--%s: %w", paramListen, err), provider.Shutdown(context.Background()))
	}
	p.addr = server.Addr()
	p.stops = append(p.stops, func(ctx context.Context) error {
		err := server.Close()
		stop()
		return errors.Join(err, provider.Shutdown(ctx))
	})
	return nil
}

// healthy answers probes, gathers nothing and needs no rights.
func healthy(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) }

// everything answers all scrapes with all series.
func everything(all prometheus.Gatherer) http.Handler {
	return promhttp.HandlerFor(all, promhttp.HandlerOpts{
		ErrorHandling: promhttp.HTTPErrorOnError, MaxRequestsInFlight: 4, Timeout: 30 * time.Second})
}

// pushTo sends all metrics every interval.
func (p *publisher) pushTo(s settings, c *content, warn func(string)) error {
	options := []otlpmetricgrpc.Option{
		otlpmetricgrpc.WithEndpointURL(s.endpoint.String()),
		otlpmetricgrpc.WithTimeout(s.timeout),
		otlpmetricgrpc.WithCompressor("gzip"),
		// The next push has the same counters, so a retry would only delay it.
		otlpmetricgrpc.WithRetry(otlpmetricgrpc.RetryConfig{Enabled: false}),
	}
	exporter, err := otlpmetricgrpc.New(context.Background(), options...)
	if err != nil {
		return fmt.Errorf("--%s: %w", paramEndpoint, err)
	}
	counted := &countedExporter{Exporter: exporter, warn: warn, endpoint: s.endpoint.Redacted()}
	// The reader waits longer than the exporter, so that it is the exporter that
	// gives up, and counts it.
	provider, stop, err := c.provider(sdkmetric.NewPeriodicReader(counted,
		sdkmetric.WithInterval(s.interval), sdkmetric.WithTimeout(s.timeout+time.Second)), s.cluster, 0)
	if err != nil {
		return err
	}
	remove := c.queues.Add("otlp-metrics", counted.stats)
	p.push = provider
	p.stops = append(p.stops, func(ctx context.Context) error {
		err := provider.Shutdown(ctx) // pushes once more
		stop()
		remove()
		return err
	})
	return nil
}

// provider publishes the content through one reader, which keeps ended processes for some time.
func (c *content) provider(reader sdkmetric.Reader, cluster string, keep time.Duration) (*sdkmetric.MeterProvider, func(), error) {
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader), sdkmetric.WithResource(newResource(cluster, c.labels.hasNodes)),
		sdkmetric.WithCardinalityLimit(0)) // the store is bounded
	stop, err := c.publish(provider.Meter(scope), keep)
	if err != nil {
		return nil, nil, errors.Join(err, provider.Shutdown(context.Background()))
	}
	return provider, stop, nil
}

// flush pushes now, so that the last values are not lost.
func (p *publisher) flush(ctx context.Context) error {
	if p.push == nil {
		return nil
	}
	return p.push.ForceFlush(ctx)
}

// close ends everything. It is safe to call again.
func (p *publisher) close(ctx context.Context) error {
	var errs []error
	for _, stop := range p.stops {
		errs = append(errs, stop(ctx))
	}
	p.stops = nil
	return errors.Join(errs...)
}

// countedExporter keeps failures from the SDK's global error handler, which
// prints each of them: they are counted, and logged once a minute.
type countedExporter struct {
	sdkmetric.Exporter
	endpoint   string
	warn       func(string)
	sent, lost atomic.Int64
	silent     atomic.Int64 // failures since the last warning
	last       atomic.Int64 // time of the last warning, Unix ns
}

func (e *countedExporter) Export(ctx context.Context, data *metricdata.ResourceMetrics) error {
	err := e.Exporter.Export(ctx, data)
	if err == nil {
		e.sent.Add(1)
		return nil
	}
	e.lost.Add(1)
	e.silent.Add(1)
	now, last := time.Now().UnixNano(), e.last.Load()
	if now-last >= int64(time.Minute) && e.last.CompareAndSwap(last, now) {
		e.warn(fmt.Sprintf("metrics: %d pushes to %s failed, the last one: %v; the next push has the current values",
			e.silent.Swap(0), e.endpoint, err))
	}
	return nil
}

func (e *countedExporter) stats() exporters.Stats {
	return exporters.Stats{Sent: e.sent.Load(), Lost: e.lost.Load()}
}
