// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/gpu-gadgets/gpu-gadgets/cmd/gpu-exporter/internal/feed"
)

// attachment is the stream of one instance. Its goroutine reads it and owns the feed
// until it ends.
type attachment struct {
	name   string
	began  time.Time
	cancel context.CancelFunc
	ended  chan struct{}
	err    error // once ended is closed
}

func (a *attachment) hasEnded() bool {
	select {
	case <-a.ended:
		return true
	default:
		return false
	}
}

func (a *attachment) wait() error {
	<-a.ended
	return a.err
}

func (a *attachment) stop() {
	a.cancel()
	<-a.ended
}

func (s *session) start(ctx context.Context, i instance, f *feed.Feed) *attachment {
	ctx, cancel := context.WithCancel(ctx)
	a := &attachment{name: i.name, began: time.Now(), cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(a.ended)
		defer cancel()
		a.err = s.read(ctx, i.id, f)
		f.Disconnected(time.Now())
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}()
	return a
}

// read feeds the stream until it ends.
func (s *session) read(ctx context.Context, id string, f *feed.Feed) error {
	stream, err := s.gadgets.RunGadget(ctx)
	if err != nil {
		return errors.New(status.Convert(err).Message())
	}
	if err := stream.Send(&api.GadgetControlRequest{Event: &api.GadgetControlRequest_AttachRequest{
		AttachRequest: &api.GadgetAttachRequest{Id: id, Version: api.VersionGadgetRunProtocol},
	}}); err != nil {
		return errors.New(status.Convert(err).Message())
	}
	events := make(chan *api.GadgetEvent) // not buffered: gRPC is, by bytes
	failed := make(chan error, 1)
	go func() {
		for {
			event, err := stream.Recv()
			if err != nil {
				failed <- err
				return
			}
			select {
			case events <- event:
			case <-ctx.Done():
				failed <- ctx.Err()
				return
			}
		}
	}()

	var connection *feed.Connection
	quiet := time.NewTimer(feed.Quiet)
	defer quiet.Stop()
	for {
		select {
		case event := <-events:
			s.node.cfg.Stats.received(len(event.GetPayload()))
			isReplay := connection == nil || !connection.Settled()
			if err := s.node.limits.charge(event, isReplay, time.Now()); err != nil {
				return err
			}
			if connection, err = take(connection, f, event); err != nil {
				return err
			}
			if connection != nil && !connection.Settled() && isReplayed(event) {
				quiet.Reset(feed.Quiet)
			}
		case <-quiet.C:
			if connection == nil {
				continue // nothing announced yet
			}
			if err := connection.Settle(time.Now()); err != nil {
				return err
			}
		case err := <-failed:
			if errors.Is(err, io.EOF) {
				return errors.New("the instance has ended")
			}
			return errors.New(status.Convert(err).Message())
		}
	}
}

// isReplayed reports whether an event is one of those that a daemon keeps, or the one before them.
func isReplayed(event *api.GadgetEvent) bool {
	return event.GetType() == api.EventTypeGadgetInfo || event.GetType() == api.EventTypeGadgetPayload
}

// take processes one event; the first one announces the data sources.
func take(c *feed.Connection, f *feed.Feed, event *api.GadgetEvent) (*feed.Connection, error) {
	switch event.GetType() {
	case api.EventTypeGadgetInfo:
		if c != nil {
			return c, errors.New("the daemon described the instance twice")
		}
		info := &api.GadgetInfo{}
		if err := proto.Unmarshal(event.GetPayload(), info); err != nil {
			return c, fmt.Errorf("read what the gadget emits: %w", err)
		}
		return f.Connect(info)
	case api.EventTypeGadgetPayload:
		if c == nil {
			return c, errors.New("the daemon sent rows before their description")
		}
		return c, c.Take(event, time.Now())
	}
	return c, nil // logs of the gadget are the daemon's
}
