// SPDX-License-Identifier: Apache-2.0

package simnodes

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// Server answers for all nodes of a fleet.
type Server struct {
	// Addresses of the nodes, in their order, as gpu-exporter takes them: NAME=tcp://ADDRESS.
	Addresses []string

	server  *grpc.Server
	serving sync.WaitGroup
}

// Serve listens on 127.0.0.1, on a port for each node, until Close.
func (f *Fleet) Serve() (*Server, error) {
	s := &Server{server: grpc.NewServer()}
	d := &daemons{fleet: f, byAddress: map[string]*node{}}
	api.RegisterGadgetManagerServer(s.server, d)
	api.RegisterGadgetInstanceManagerServer(s.server, instances{daemons: d})
	var listeners []net.Listener
	for _, n := range f.nodes {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			for _, l := range listeners {
				l.Close()
			}
			return nil, fmt.Errorf("listen for %s: %w", n.name, err)
		}
		listeners = append(listeners, listener)
		address := listener.Addr().String()
		d.byAddress[address] = n
		s.Addresses = append(s.Addresses, n.name+"=tcp://"+address)
	}
	for _, listener := range listeners {
		s.serving.Go(func() { _ = s.server.Serve(listener) }) // returns at Close
	}
	return s, nil
}

// Close ends all connections.
func (s *Server) Close() {
	s.server.Stop()
	s.serving.Wait()
}

// daemons is the API of all of them: the address of a request identifies the one that it is for.
type daemons struct {
	api.UnimplementedGadgetManagerServer
	fleet     *Fleet
	byAddress map[string]*node
}

type instances struct {
	api.UnimplementedGadgetInstanceManagerServer
	*daemons
}

func (d *daemons) node(ctx context.Context) (*node, error) {
	p, ok := peer.FromContext(ctx)
	if !ok || p.LocalAddr == nil || d.byAddress[p.LocalAddr.String()] == nil {
		return nil, status.Error(codes.Internal, "no node has this address")
	}
	return d.byAddress[p.LocalAddr.String()], nil
}

// ListGadgetInstances implements api.GadgetInstanceManagerServer.
func (i instances) ListGadgetInstances(context.Context, *api.ListGadgetInstancesRequest) (*api.ListGadgetInstanceResponse, error) {
	answer := &api.ListGadgetInstanceResponse{}
	for _, instance := range []struct{ id, image string }{{memoryID, "cuda_alloc"}, {ranksID, "nccl_trace"}} {
		answer.GadgetInstances = append(answer.GadgetInstances, &api.GadgetInstance{
			Id: instance.id, Name: instance.image, GadgetConfig: &api.GadgetRunRequest{ImageName: "registry.example/gpu/" + instance.image + ":v1"},
			State: &api.GadgetInstanceState{Status: api.GadgetInstanceStatus_StatusRunning},
		})
	}
	return answer, nil
}

// GetGadgetInfo implements api.GadgetManagerServer.
func (d *daemons) GetGadgetInfo(_ context.Context, request *api.GetGadgetInfoRequest) (*api.GetGadgetInfoResponse, error) {
	info := d.fleet.schema.infos[request.GetImageName()]
	if info == nil {
		return nil, status.Error(codes.NotFound, "no such instance")
	}
	return &api.GetGadgetInfoResponse{GadgetInfo: info}, nil
}

// RunGadget implements api.GadgetManagerServer: it sends the tables of an instance until the
// client goes.
func (d *daemons) RunGadget(stream api.GadgetManager_RunGadgetServer) error {
	n, err := d.node(stream.Context())
	if err != nil {
		return err
	}
	request, err := stream.Recv()
	if err != nil {
		return err
	}
	id := request.GetAttachRequest().GetId()
	info := d.fleet.schema.infos[id]
	if info == nil {
		return status.Error(codes.NotFound, "no such instance")
	}
	payload, err := proto.Marshal(info)
	if err != nil {
		return err
	}
	if err := stream.Send(&api.GadgetEvent{Type: api.EventTypeGadgetInfo, Payload: payload}); err != nil {
		return err
	}
	var events []*api.GadgetEvent
	for seq := uint32(1); ; {
		if err := n.await(stream.Context()); err != nil {
			return nil //nolint:nilerr // the client has gone
		}
		if n.kind != Flood || events == nil { // a flood is the same again and again
			if events, err = n.tables(id, d.fleet.Now()); err != nil {
				return err
			}
		}
		for _, event := range events {
			event.Seq = seq
			seq++
			if err := stream.Send(event); err != nil {
				return err
			}
		}
	}
}

var errGone = errors.New("the client has gone")

// await returns at the node's next moment of an interval.
func (n *node) await(ctx context.Context) error {
	if n.kind == Flood {
		return ctx.Err()
	}
	interval := n.fleet.cfg.Interval
	pause := interval - (n.fleet.Now()-n.phase)%interval
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return errGone
	}
}
