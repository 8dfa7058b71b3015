// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"net"
	"slices"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"

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
		&content{store: store, queues: o.Queues, sources: append([]Source{&idleContexts{store}}, o.Sources...)}, nil)
	if err != nil {
		return nil, nil, err
	}
	return p.addr, func() error { return p.close(context.Background()) }, nil
}

// PublishParams are the parameters of Publish.
func PublishParams() api.Params {
	return slices.DeleteFunc(globalParams(), func(p *api.Param) bool { return p.Key == paramNVML })
}

// Publish publishes a store of several nodes, as the parameters define, until stop is
// called, which pushes a last time. at is nil without a scrape endpoint. warn receives
// failed pushes. sources are additional metrics.
func Publish(values api.ParamValues, store *Store, queues *exporters.Registry, warn func(string), sources ...Source) (at net.Addr, stop func(context.Context) error, err error) {
	s, err := parse(func(key string) string { return values[key] })
	if err != nil {
		return nil, nil, err
	}
	s.nodes = true
	p, err := newPublisher(s, &content{store: store, queues: queues, sources: sources}, warn)
	if err != nil {
		return nil, nil, err
	}
	return p.addr, p.close, nil
}
