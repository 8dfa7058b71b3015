// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/params"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/gpu-gadgets/gpu-gadgets/internal/ig"
)

// lastBut is just before the subscription by which Inspektor Gadget sends packets to
// clients (1000000 in its instance-manager, v0.55.0).
const lastBut = 999_999

// Backlog is an operator that keeps tables out of the daemon's store for clients.
// Inspektor Gadget stores the last 1024 packets of each instance, encoded. For a table
// that is read each second these are old states of the same rows: with a thousand rows
// half a gigabyte, which remains after the client has left. So Backlog passes tables only
// to the clients attached at that moment; a new client gets the next one. Events take the
// usual path.
//
// It must be registered before the service is made.
type Backlog struct {
	mu      sync.Mutex
	clients map[*clientStream]string // and the instance that each is attached to
	// began is the start of each instance, in nanoseconds, by which a returning client
	// learns whether counters continue. Instances are few.
	began map[string]int64
}

// NewBacklog returns the operator.
func NewBacklog() *Backlog {
	return &Backlog{clients: map[*clientStream]string{}, began: map[string]int64{}}
}

func (*Backlog) Name() string               { return "backlog" }
func (*Backlog) Init(*params.Params) error  { return nil }
func (*Backlog) GlobalParams() api.Params   { return nil }
func (*Backlog) InstanceParams() api.Params { return nil }

// Priority is after operators that add data sources.
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
		if err := ds.SubscribePacket(func(ds datasource.DataSource, p datasource.Packet) error {
			if err := b.deliver(id, ds.Name(), p.Raw()); err != nil {
				gc.Logger().Warnf("encode a table of %s for clients: %v", ds.Name(), err)
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
	b.mu.Lock()
	defer b.mu.Unlock()
	b.began[id] = time.Now().UnixNano()
	return backlogInstance{}, nil
}

type backlogInstance struct{}

func (backlogInstance) Name() string                        { return "backlog" }
func (backlogInstance) Start(operators.GadgetContext) error { return nil }
func (backlogInstance) Stop(operators.GadgetContext) error  { return nil }
func (backlogInstance) Close(operators.GadgetContext) error { return nil }

// deliver encodes a table, if anybody wants it. It does not wait for clients.
func (b *Backlog) deliver(id, source string, raw proto.Message) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var payload []byte
	for c, attached := range b.clients {
		if attached != id {
			continue
		}
		if payload == nil {
			var err error
			if payload, err = proto.Marshal(raw); err != nil {
				return err
			}
		}
		c.offer(table{source, payload})
	}
	return nil
}

// describe adds the start of an instance to Inspektor Gadget's description, on a copy.
func (b *Backlog) describe(event *api.GadgetEvent) (*api.GadgetEvent, *api.GadgetInfo, error) {
	info := &api.GadgetInfo{}
	if err := proto.Unmarshal(event.Payload, info); err != nil {
		return nil, nil, fmt.Errorf("read the description of an instance: %w", err)
	}
	b.mu.Lock()
	began, ok := b.began[info.Id]
	b.mu.Unlock()
	if !ok {
		return event, info, nil
	}
	if info.Annotations == nil {
		info.Annotations = map[string]string{}
	}
	info.Annotations[ig.AnnotationInstance] = strconv.FormatInt(began, 10)
	payload, err := proto.Marshal(info)
	if err != nil {
		return nil, nil, fmt.Errorf("say when an instance began: %w", err)
	}
	return &api.GadgetEvent{Type: event.Type, Seq: event.Seq, DataSourceID: event.DataSourceID, Payload: payload}, info, nil
}

func (b *Backlog) add(c *clientStream, id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !c.hasEnded.Load() {
		b.clients[c] = id
	}
}

func (b *Backlog) remove(c *clientStream) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.clients, c)
}

// intercept puts a clientStream around each stream.
func (b *Backlog) intercept(server any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	c := newClientStream(stream, b)
	defer c.end()
	return handler(server, c)
}
