// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"golang.org/x/time/rate"
	"google.golang.org/protobuf/proto"

	"github.com/gpu-gadgets/gpu-gadgets/cmd/gpu-exporter/internal/feed"
	"github.com/gpu-gadgets/gpu-gadgets/cmd/gpu-exporter/internal/targets"
)

const (
	// maxDescription of instances and of what they emit: their messages are small.
	maxDescription = 16 << 20
	// burst is for how many seconds' bytes a daemon may send at once: the largest message.
	burst = 4
	// replayed is how many seconds' bytes it may send again at attachments. A stock daemon keeps the
	// last 512 tables: with 65,536 rows of 500 bytes they are 250 seconds of the default.
	replayed = 300
	// leastCost of a packet: reading many small ones is work, too.
	leastCost = 4 << 10
)

var errNotOurs = errors.New("it is of another shard")

// cost of an event, in bytes, with fields that we do not know.
func cost(e *api.GadgetEvent) int { return max(proto.Size(e), leastCost) }

// limits bound the bytes that a daemon may send over all its connections. They are safe for concurrent
// use.
type limits struct {
	perSecond       int64
	current, replay *rate.Limiter
}

func newLimits(perSecond int64) *limits {
	limiter := func(seconds int64) *rate.Limiter {
		return rate.NewLimiter(rate.Limit(perSecond), int(seconds*perSecond))
	}
	return &limits{perSecond, limiter(burst), limiter(replayed)}
}

// charge returns Untrusted if an event is more than the daemon may send. isReplay: the connection
// has not settled, as the daemon sends again what it has kept.
func (l *limits) charge(e *api.GadgetEvent, isReplay bool, now time.Time) error {
	switch {
	case !isReplay && !l.current.AllowN(now, cost(e)):
		return &feed.Untrusted{Reason: feed.Flood, Detail: fmt.Sprintf("more than %d bytes per second", l.perSecond)}
	case isReplay && !l.replay.AllowN(now, cost(e)):
		return &feed.Untrusted{Reason: feed.Flood, Detail: fmt.Sprintf("more than %d bytes at attachments", l.replay.Burst())}
	}
	return nil
}

// isCutOff reports whether a session ended because the daemon cannot be trusted. It returns when
// the daemon may be connected to again, and then starts over with it.
func (n *node) isCutOff(ctx context.Context, err error) bool {
	untrusted := (*feed.Untrusted)(nil)
	if !errors.As(err, &untrusted) {
		return false
	}
	n.cfg.Stats.cutOff(n.target.Node, untrusted.Reason)
	n.cfg.Log.Warnf("node %s: %v; it is cut off for %v", n.target.Node, err, n.cfg.CutOff)
	n.close()
	n.feeds, n.isNew = map[string]*feed.Feed{}, false
	select {
	case <-time.After(n.cfg.CutOff):
	case <-ctx.Done():
	}
	return true
}

// nodeNames are the names of all targets, those of other shards as well.
type nodeNames struct {
	mu    sync.Mutex
	names map[string]bool
}

func (n *nodeNames) set(all []targets.Target) {
	names := map[string]bool{}
	for _, t := range all {
		names[t.Node] = true
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.names = names
}

func (n *nodeNames) has(name string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.names[name]
}
