// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"net"
	"time"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/gpu-gadgets/gpu-gadgets/cmd/gpu-exporter/internal/feed"
	"github.com/gpu-gadgets/gpu-gadgets/cmd/gpu-exporter/internal/targets"
	"github.com/gpu-gadgets/gpu-gadgets/internal/throttle"
)

// maxMessage bounds the memory that a daemon can make us use: a table is one message,
// with at most 65536 rows of a few kilobytes, including names.
const maxMessage = 256 << 20

// node is the connection to one daemon, made again and again.
type node struct {
	cfg    Config
	target targets.Target
	// isNew: the daemon's counters began after this process did.
	isNew bool
	texts *feed.Texts
	names *nodeNames
	// limits hold whatever the daemon does with its connections.
	limits *limits
	feeds  map[string]*feed.Feed // by the instance's id; of the polling goroutine

	connected bool // the daemon has answered
	warned    throttle.Throttle
}

func (n *node) run(ctx context.Context) {
	if n.cfg.Ranks != nil {
		n.cfg.Ranks.Node(n.target.Node) // it is waited for
	}
	n.cfg.Stats.add(n.target.Node)
	defer n.cfg.Stats.remove(n.target.Node)
	defer n.close()
	pause := n.cfg.MinBackoff
	var away time.Time // since when
	for {
		n.connected = false
		err := n.session(ctx)
		if ctx.Err() != nil {
			return
		}
		if n.isCutOff(ctx, err) {
			away, pause = time.Time{}, n.cfg.MinBackoff
			continue
		}
		if n.connected {
			away, pause = time.Time{}, n.cfg.MinBackoff
		} else if n.target.Started.IsZero() {
			n.isNew = true // it was not there when we were
		}
		n.cfg.Stats.set(n.target.Node, Away)
		if away.IsZero() {
			away = time.Now()
			n.cfg.Log.Warnf("node %s: %v; trying again", n.target.Node, err)
		} else {
			n.cfg.Log.Debugf("node %s: %v", n.target.Node, err)
		}
		if time.Since(away) > n.cfg.Stale {
			for _, f := range n.feeds {
				f.Hide()
			}
		}
		// Many nodes, or many exporters, do not reconnect at the same time.
		select {
		case <-time.After(time.Duration(float64(pause) * (0.5 + rand.Float64()))):
		case <-ctx.Done():
			return
		}
		pause = min(2*pause, n.cfg.MaxBackoff)
	}
}

func (n *node) close() {
	for _, f := range n.feeds {
		f.Hide()
	}
}

// session connects, and follows the instances until the daemon does not answer. It
// does not return without an error before ctx ends.
func (n *node) session(ctx context.Context) error {
	connection, err := grpc.NewClient("passthrough:///"+n.target.Node,
		grpc.WithTransportCredentials(n.target.Credentials),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return n.target.Dial(ctx) }),
		// Trying again is our own business: it starts again.
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: time.Hour, Multiplier: 1, MaxDelay: time.Hour}, MinConnectTimeout: 5 * time.Second}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)))
	if err != nil {
		return err
	}
	defer connection.Close()
	s := &session{
		node: n, instances: api.NewGadgetInstanceManagerClient(connection), gadgets: api.NewGadgetManagerClient(connection),
		attached: map[string]*attachment{}, skip: map[string]skipped{}, unstarted: map[string]skipped{}, wake: make(chan struct{}, 1),
	}
	defer s.end()
	for {
		if err := s.poll(ctx); err != nil {
			return err
		}
		if !n.connected {
			n.connected = true
			n.cfg.Stats.set(n.target.Node, Connected)
			n.cfg.Log.Infof("node %s: connected, %d gadget instances to follow", n.target.Node, len(s.attached))
		}
		select {
		case <-time.After(n.cfg.Poll):
		case <-s.wake: // an attachment ended: poll at once, but not in a busy loop
			select {
			case <-time.After(min(n.cfg.Poll, n.cfg.MinBackoff)):
			case <-ctx.Done():
			}
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

var errNotReady = errors.New("the gadget has not started yet")

const never = time.Duration(math.MaxInt64)
