// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"sync"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/params"
	"google.golang.org/grpc"
)

// lastBut is just before the subscription by which Inspektor Gadget sends packets to
// clients (1000000 in its instance-manager, v0.55.0).
const lastBut = 999_999

// Backlog is an operator that keeps tables out of what the daemon stores for clients.
// Inspektor Gadget keeps the last 1024 packets of each instance, encoded; of a table
// that is read each second they are old states of the same rows, and with a thousand
// rows half a gigabyte. While no client is attached to an instance, its tables go no
// further than its operators. A client gets the next one. Events are kept.
//
// It must be registered before the service is made.
type Backlog struct {
	mu      sync.Mutex
	clients map[string]int // by instance
}

// NewBacklog returns the operator.
func NewBacklog() *Backlog { return &Backlog{clients: map[string]int{}} }

func (*Backlog) Name() string               { return "backlog" }
func (*Backlog) Init(*params.Params) error  { return nil }
func (*Backlog) GlobalParams() api.Params   { return nil }
func (*Backlog) InstanceParams() api.Params { return nil }

// Priority is behind operators that add data sources.
func (*Backlog) Priority() int { return 40_000 }

// InstantiateDataOperator takes part in instances only.
func (b *Backlog) InstantiateDataOperator(gc operators.GadgetContext, _ api.ParamValues) (operators.DataOperatorInstance, error) {
	id := gc.ID()
	if id == "" || !gc.IsRemoteCall() {
		return nil, nil
	}
	isUsed := false
	for _, ds := range gc.GetDataSources() {
		if ds.Type() != datasource.TypeArray {
			continue
		}
		if err := ds.SubscribePacket(func(datasource.DataSource, datasource.Packet) error {
			if b.hasClient(id) {
				return nil
			}
			return datasource.ErrDiscard
		}, lastBut); err != nil {
			return nil, fmt.Errorf("subscribe to %s: %w", ds.Name(), err)
		}
		isUsed = true
	}
	if !isUsed {
		return nil, nil
	}
	return backlogInstance{}, nil
}

type backlogInstance struct{}

func (backlogInstance) Name() string                        { return "backlog" }
func (backlogInstance) Start(operators.GadgetContext) error { return nil }
func (backlogInstance) Stop(operators.GadgetContext) error  { return nil }
func (backlogInstance) Close(operators.GadgetContext) error { return nil }

func (b *Backlog) hasClient(id string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.clients[id] > 0
}

func (b *Backlog) add(id string, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.clients[id] += n; b.clients[id] == 0 {
		delete(b.clients, id)
	}
}

// intercept counts the clients of instances: a stream whose first message says to
// which one it wants to attach.
func (b *Backlog) intercept(server any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	counted := &countedStream{ServerStream: stream, backlog: b}
	defer counted.end()
	return handler(server, counted)
}

type countedStream struct {
	grpc.ServerStream
	backlog *Backlog

	mu       sync.Mutex
	id       string
	hasEnded bool
}

func (s *countedStream) RecvMsg(message any) error {
	if err := s.ServerStream.RecvMsg(message); err != nil {
		return err
	}
	request, ok := message.(*api.GadgetControlRequest)
	if !ok || request.GetAttachRequest().GetId() == "" {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.id == "" && !s.hasEnded {
		s.id = request.GetAttachRequest().GetId()
		s.backlog.add(s.id, 1)
	}
	return nil
}

func (s *countedStream) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hasEnded = true; s.id != "" {
		s.backlog.add(s.id, -1)
	}
}
