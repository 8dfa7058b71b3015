// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpu-gadgets/gpu-gadgets/internal/export/exporters"
)

// Options are additional data for Serve to publish.
type Options struct {
	Queues  *exporters.Registry // none when nil
	Sources []Source
	Cluster string
	Compat  bool // the reference dashboard's counters, too
}

// Serve publishes a store at an address until stop is called, without Inspektor
// Gadget.
func Serve(address string, store *Store, o Options) (at net.Addr, stop func() error, err error) {
	if o.Queues == nil {
		o.Queues = &exporters.Registry{}
	}
	p, err := newPublisher(settings{listen: address, cluster: o.Cluster, compat: o.Compat},
		&content{store: store, queues: o.Queues, sources: append([]Source{&idleContexts{store: store}}, o.Sources...)}, nil)
	if err != nil {
		return nil, nil, err
	}
	return p.addr, func() error { return p.close(context.Background()) }, nil
}

// PublishParams are the parameters of Publish: those that need neither a library nor the /proc of
// the nodes.
func PublishParams() api.Params {
	return slices.DeleteFunc(globalParams(), func(p *api.Param) bool {
		return slices.Contains([]string{paramNVML, paramHolders, paramFrozen}, p.Key)
	})
}

// Publication is a store of several nodes, and how it is published.
type Publication struct {
	Store   *Store
	Queues  *exporters.Registry
	Sources []Source     // additional metrics
	Warn    func(string) // receives failed pushes
	// Handler answers scrapes with what each reader may see; nil: all readers see everything.
	Handler func(prometheus.Gatherer) http.Handler
}

// sharedKeep is how long processes that have ended are in scrapes by several readers, so that one
// of them does not hide the last values from the others: two intervals of Prometheus's default.
const sharedKeep = 2 * time.Minute

// Publish publishes as the parameters define, until stop is called, which pushes a last time. at
// is nil without a scrape endpoint.
func Publish(values api.ParamValues, p Publication) (at net.Addr, stop func(context.Context) error, err error) {
	s, err := parse(func(key string) string { return values[key] })
	if err != nil {
		return nil, nil, err
	}
	s.nodes, s.handler = true, p.Handler
	sources := append([]Source{&idleContexts{p.Store, labels{hasNodes: true}}}, p.Sources...)
	opened, err := newPublisher(s, &content{store: p.Store, queues: p.Queues, sources: sources}, p.Warn)
	if err != nil {
		return nil, nil, err
	}
	return opened.addr, opened.close, nil
}
