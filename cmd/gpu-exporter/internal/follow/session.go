// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/gpu-gadgets/gpu-gadgets/cmd/gpu-exporter/internal/feed"
	"github.com/gpu-gadgets/gpu-gadgets/internal/ig"
)

const (
	// requestTimeout is for an answer of the daemon; it detects that a node has
	// disappeared without a message.
	requestTimeout = 10 * time.Second
	// retryInstance is the longest pause before another attempt to attach to an instance that failed.
	retryInstance = 30 * time.Second
	// retryStart is that for one that has not started yet: a daemon of Inspektor Gadget v0.55.0 never ends a
	// request for its description if it does not start (GadgetInstance.GadgetInfo ignores the request's context).
	retryStart = time.Hour
)

// session is one connection to a daemon. It is of one goroutine.
type session struct {
	node      *node
	instances api.GadgetInstanceManagerClient
	gadgets   api.GadgetManagerClient
	attached  map[string]*attachment // by id
	skip      map[string]skipped     // by id
	unstarted map[string]skipped     // by name, where the daemon lists no instances
	wake      chan struct{}          // an attachment has ended
	polled    bool
}

// skipped is an instance with no further attempt to attach before a time.
type skipped struct {
	until time.Time
	pause time.Duration
}

// again returns the state after another failure: the pause doubles from least to most.
func (s skipped) again(least, most time.Duration, now time.Time) skipped {
	pause := min(max(least, 2*s.pause), most)
	return skipped{now.Add(pause), pause}
}

// retry decides when to attach again to an instance whose attachment failed: at once after a long
// one. An attachment that fails soon may do so each time, after all that the daemon has kept.
func (s *session) retry(id string, lasted time.Duration) {
	if lasted >= retryInstance {
		delete(s.skip, id)
		return
	}
	s.skip[id] = s.skip[id].again(s.node.cfg.MinBackoff, retryInstance, time.Now())
}

// poll attaches to new instances, and detaches from those that are gone.
func (s *session) poll(ctx context.Context) error {
	running, err := s.list(ctx)
	if err != nil {
		return err
	}
	isGone := func(id string) bool {
		return !slices.ContainsFunc(running, func(i instance) bool { return i.id == id })
	}
	for id, a := range s.attached {
		if a.hasEnded() {
			err := a.wait()
			if untrusted := (*feed.Untrusted)(nil); errors.As(err, &untrusted) {
				return err
			}
			if err != nil && ctx.Err() == nil {
				s.node.cfg.Log.Warnf("node %s: instance %s: %v", s.node.target.Node, a.name, err)
				s.retry(id, time.Since(a.began))
			}
			delete(s.attached, id)
		} else if isGone(id) {
			a.stop()
			delete(s.attached, id)
		}
	}
	for id, f := range s.node.feeds {
		if isGone(id) {
			f.Hide()
			delete(s.node.feeds, id)
		}
	}
	maps.DeleteFunc(s.skip, func(id string, _ skipped) bool { return isGone(id) })
	for _, i := range running {
		if s.attached[i.id] != nil || time.Now().Before(s.skip[i.id].until) {
			continue
		}
		if err := s.attach(ctx, i); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if errors.Is(err, feed.ErrNoRows) || errors.Is(err, errNotOurs) {
				s.skip[i.id] = skipped{until: time.Now().Add(never / 2)}
				s.node.cfg.Log.Debugf("node %s: instance %s: %v", s.node.target.Node, i.name, err)
				continue
			}
			most := retryInstance
			if errors.Is(err, errNotReady) {
				most = retryStart
			}
			s.skip[i.id] = s.skip[i.id].again(s.node.cfg.MinBackoff, most, time.Now())
			s.node.cfg.Log.Warnf("node %s: attach to instance %s: %v", s.node.target.Node, i.name, err)
		}
	}
	s.polled = true
	return nil
}

// instance is one to follow.
type instance struct{ id, name, gadget string }

// list requests the running instances that the configuration selects.
func (s *session) list(ctx context.Context) ([]instance, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	answer, err := s.instances.ListGadgetInstances(ctx, &api.ListGadgetInstancesRequest{}, grpc.MaxCallRecvMsgSize(maxDescription))
	if err != nil {
		return s.listFailed(ctx, err)
	}
	var all []instance
	for _, i := range answer.GetGadgetInstances() {
		if !s.isWanted(i.GetId(), i.GetName()) {
			continue
		}
		if state := i.GetState(); state.GetStatus() != api.GadgetInstanceStatus_StatusRunning {
			s.node.cfg.Log.Debugf("node %s: instance %s does not run: %s", s.node.target.Node, i.GetName(), state.GetMessage())
			continue
		}
		all = append(all, instance{i.GetId(), i.GetName(), ig.GadgetName(i.GetGadgetConfig().GetImageName())})
	}
	return all, nil
}

// listFailed handles a daemon of Inspektor Gadget v0.55.0 in a cluster with an instance
// for other nodes only: listing then fails. Instances with known names can be requested
// one by one.
func (s *session) listFailed(ctx context.Context, err error) ([]instance, error) {
	text := status.Convert(err).Message()
	switch {
	case status.Code(err) == codes.Unimplemented:
		return nil, errors.New("the daemon keeps no gadget instances")
	case status.Code(err) != codes.Unknown || !strings.Contains(text, "instance status"):
		return nil, fmt.Errorf("list gadget instances: %s", text)
	case len(s.node.cfg.Instances) == 0:
		return nil, fmt.Errorf("list gadget instances: %s: the daemon lists none while the cluster has one for other nodes only; name the instances to follow with --instance", text)
	}
	var all []instance
	for _, name := range s.node.cfg.Instances {
		if time.Now().Before(s.unstarted[name].until) {
			continue
		}
		info, err := s.info(ctx, name)
		switch {
		case !errors.Is(err, errNotReady):
			delete(s.unstarted, name)
		case ctx.Err() == nil: // else it had less time than others
			s.unstarted[name] = s.unstarted[name].again(s.node.cfg.MinBackoff, retryStart, time.Now())
		}
		if err != nil {
			s.node.cfg.Log.Debugf("node %s: instance %s: %v", s.node.target.Node, name, err)
			continue
		}
		all = append(all, instance{info.GetId(), name, ig.GadgetName(info.GetImageName())})
	}
	return all, nil
}

func (s *session) isWanted(id, name string) bool {
	wanted := s.node.cfg.Instances
	return len(wanted) == 0 || slices.Contains(wanted, id) || slices.Contains(wanted, name)
}

// info requests the description of a gadget's data. The answer arrives once the gadget
// has started, so it must be requested before attaching: the daemon of v0.55.0 crashes
// with a nil pointer if a client attaches to an instance that has not started yet
// (GadgetInstance.AddClient reads gadgetInfo, which is set in the gadget's start).
func (s *session) info(ctx context.Context, id string) (*api.GadgetInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout/2)
	defer cancel()
	answer, err := s.gadgets.GetGadgetInfo(ctx, &api.GetGadgetInfoRequest{
		ImageName: id, Version: api.VersionGadgetInfo, Flags: api.GadgetInfoRequestFlagUseInstance,
	}, grpc.MaxCallRecvMsgSize(maxDescription))
	switch {
	case status.Code(err) == codes.DeadlineExceeded:
		return nil, errNotReady
	case err != nil:
		return nil, errors.New(status.Convert(err).Message())
	case answer.GetGadgetInfo() == nil:
		return nil, errNotReady
	}
	return answer.GetGadgetInfo(), nil
}

// attach starts an attachment, if the gadget has anything for us.
func (s *session) attach(ctx context.Context, i instance) error {
	info, err := s.info(ctx, i.id)
	if err != nil {
		return err
	}
	if !s.isOurs(info) {
		return errNotOurs
	}
	f := s.node.feeds[i.id]
	if f == nil {
		cfg := feed.Config{
			Sender: s.node.cfg.Sender, Store: s.node.cfg.Store, Node: s.node.target.Node, Gadget: i.gadget, Texts: s.node.texts,
			// It was not listed before.
			IsNew:   s.node.isNew || s.polled,
			IsOther: s.node.names.has,
			Warn: func(err error) {
				if suppressed, ok := s.node.warned.Pass(time.Now()); ok {
					s.node.cfg.Log.Warnf("node %s: instance %s: %v (%d more like this)", s.node.target.Node, i.name, err, suppressed)
				}
			},
		}
		if joiner := s.node.cfg.Ranks; joiner != nil {
			cfg.Ranks = joiner.Node(s.node.target.Node)
		}
		f = feed.New(cfg)
	}
	if _, err := f.Connect(info); err != nil {
		return err
	}
	s.node.feeds[i.id] = f
	s.attached[i.id] = s.start(ctx, i, f)
	s.node.cfg.Log.Infof("node %s: following instance %s (%s)", s.node.target.Node, i.name, i.gadget)
	return nil
}

// isOurs reports whether this shard follows an instance: the shard that judges has all ranks, and
// that of the node has everything else.
func (s *session) isOurs(info *api.GadgetInfo) bool {
	if feed.HasRanks(info) {
		return s.node.cfg.Shard.Judges()
	}
	return s.node.cfg.Shard.Has(s.node.target.Node)
}

func (s *session) end() {
	for _, a := range s.attached {
		a.stop()
	}
}
