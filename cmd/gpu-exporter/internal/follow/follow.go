// SPDX-License-Identifier: Apache-2.0

// Package follow keeps connections to the daemons of all nodes and to the gadget
// instances that run there, which may start and stop at any time, and feeds the data that
// they emit.
//
// It talks to the daemons by Inspektor Gadget's own API (pkg/gadget-service/api), not
// through its client runtime: that limits messages to 4 MiB, whereas a full table can be
// larger, and leaks a goroutine for each connection that it gives up.
package follow

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/cmd/gpu-exporter/internal/feed"
	"github.com/gpu-gadgets/gpu-gadgets/cmd/gpu-exporter/internal/shard"
	"github.com/gpu-gadgets/gpu-gadgets/cmd/gpu-exporter/internal/targets"
	"github.com/gpu-gadgets/gpu-gadgets/operators/judge/ranks"
	"github.com/gpu-gadgets/gpu-gadgets/operators/send/metrics"
)

// Log is for messages to users.
type Log interface {
	Infof(format string, args ...any)
	Warnf(format string, args ...any)
	Debugf(format string, args ...any)
}

// Config of a Follower.
type Config struct {
	Sender feed.Sender    // nil: no profiles
	Store  *metrics.Store // nil: no metrics
	// Ranks judges those of NCCL on all nodes together; nil: they are not judged.
	Ranks *ranks.Joiner
	// Instances are the names or ids to attach to; none: all that have rows.
	Instances []string
	// Shard is the part of the nodes that is followed.
	Shard shard.Shard
	// Limit is how many bytes per second a daemon may send; 0: 64 MiB.
	Limit int64
	// Stats counts what was received, and from whom nothing more is taken; may be nil.
	Stats *Stats
	Log   Log

	// Poll is the interval at which a daemon's instances are listed; default 5 s.
	Poll time.Duration
	// MinBackoff doubles with each failure to connect up to MaxBackoff; default
	// 1 s and 30 s.
	MinBackoff, MaxBackoff time.Duration
	// Stale is how long the metrics of a node that is away stay; default 1 min.
	Stale time.Duration
	// CutOff is after which time a daemon that was not to be trusted is connected to again;
	// default 10 min.
	CutOff time.Duration
}

// Follower follows targets. Use Run.
type Follower struct {
	cfg   Config
	nodes map[string]*running
	began time.Time
	first bool // no targets were seen yet
	names nodeNames
	texts feed.Texts
	wait  sync.WaitGroup
}

type running struct {
	node   *node
	cancel context.CancelFunc
}

// Run follows a source until ctx ends, and returns when all connections are closed and
// their data has been passed on.
func Run(ctx context.Context, source targets.Source, cfg Config) error {
	set := func(d *time.Duration, value time.Duration) {
		if *d == 0 {
			*d = value
		}
	}
	set(&cfg.Poll, 5*time.Second)
	set(&cfg.MinBackoff, time.Second)
	set(&cfg.MaxBackoff, 30*time.Second)
	set(&cfg.Stale, time.Minute)
	set(&cfg.CutOff, 10*time.Minute)
	cfg.Limit = cmp.Or(cfg.Limit, 64<<20)
	cfg.Stats = cmp.Or(cfg.Stats, &Stats{})
	f := &Follower{cfg: cfg, nodes: map[string]*running{}, first: true, began: time.Now()}
	err := source.Watch(ctx, func(all []targets.Target) { f.follow(ctx, all) })
	for _, r := range f.nodes {
		r.cancel()
	}
	f.wait.Wait()
	if err != nil {
		return fmt.Errorf("find daemons: %w", err)
	}
	return nil
}

// follow makes the connections be those of the targets.
func (f *Follower) follow(ctx context.Context, all []targets.Target) {
	wanted := map[string]bool{}
	f.names.set(all)
	for _, t := range all {
		if !f.cfg.Shard.Judges() && !f.cfg.Shard.Has(t.Node) {
			continue
		}
		wanted[t.Key] = true
		if f.nodes[t.Key] != nil {
			continue
		}
		ctx, cancel := context.WithCancel(ctx)
		n := &node{cfg: f.cfg, texts: &f.texts, names: &f.names, target: t, isNew: t.Started.After(f.began),
			limits: newLimits(f.cfg.Limit), feeds: map[string]*feed.Feed{}}
		f.nodes[t.Key] = &running{n, cancel}
		f.wait.Go(func() { n.run(ctx) })
	}
	for key, r := range f.nodes {
		if !wanted[key] {
			f.cfg.Log.Infof("node %s was removed", r.node.target.Node)
			r.cancel()
			delete(f.nodes, key)
		}
	}
	if f.first && len(all) == 0 {
		f.cfg.Log.Infof("there is no daemon yet")
	}
	f.first = false
}
