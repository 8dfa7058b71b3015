// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"sync"
	"sync/atomic"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"google.golang.org/grpc"
)

// waitingTables is the number of tables that may wait for a slow client; each data source
// has one per second. Further ones are skipped, and the client sees a gap in the numbers.
const waitingTables = 16

// table is one of a data source, encoded.
type table struct {
	source  string
	payload []byte
}

// clientStream is the connection of a client. Once Inspektor Gadget has sent it the
// instance that it is attached to, tables of that instance are sent, too. Both share the
// stream and its sequence numbers, by which a client notices gaps.
type clientStream struct {
	grpc.ServerStream
	backlog *Backlog
	tables  chan table

	ended    chan struct{}
	hasEnded atomic.Bool
	skipped  atomic.Uint32 // tables that did not fit

	mu      sync.Mutex        // a message at a time: it is held while the client does not read
	wants   bool              // has requested to be attached
	sources map[string]uint32 // nil: not attached
	seq     uint32            // of the last message
	theirs  uint32            // and of Inspektor Gadget's last
}

func newClientStream(stream grpc.ServerStream, b *Backlog) *clientStream {
	return &clientStream{ServerStream: stream, backlog: b, tables: make(chan table, waitingTables), ended: make(chan struct{})}
}

// RecvMsg notes whether the client wants to attach.
func (c *clientStream) RecvMsg(message any) error {
	if err := c.ServerStream.RecvMsg(message); err != nil {
		return err
	}
	request, ok := message.(*api.GadgetControlRequest)
	if !ok || request.GetAttachRequest().GetId() == "" {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wants = true
	return nil
}

// SendMsg is called by Inspektor Gadget.
func (c *clientStream) SendMsg(message any) error {
	event, ok := message.(*api.GadgetEvent)
	if !ok {
		return c.ServerStream.SendMsg(message)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sources != nil && event.Type == api.EventTypeGadgetPayload {
		c.seq += event.Seq - c.theirs + c.skipped.Swap(0) // with the gap that there may be
		c.theirs = event.Seq
		event.Seq = c.seq
	}
	if !c.wants || c.sources != nil || event.Type != api.EventTypeGadgetInfo {
		return c.ServerStream.SendMsg(event)
	}
	described, info, err := c.backlog.describe(event)
	if err == nil {
		err = c.ServerStream.SendMsg(described)
	}
	if err == nil {
		c.begin(info)
	}
	return err
}

// begin has tables sent to a client that knows the instance now.
func (c *clientStream) begin(info *api.GadgetInfo) {
	if info.Id == "" {
		return
	}
	c.sources = map[string]uint32{}
	for _, ds := range info.DataSources {
		c.sources[ds.Name] = ds.Id
	}
	go c.send()
	c.backlog.add(c, info.Id)
}

// offer does not wait.
func (c *clientStream) offer(t table) {
	select {
	case c.tables <- t:
	default:
		c.skipped.Add(1)
	}
}

// send sends tables until the stream has ended.
func (c *clientStream) send() {
	for {
		select {
		case <-c.ended:
			return
		case t := <-c.tables:
			if c.sendTable(t) != nil {
				return // its other side notices, too
			}
		}
	}
}

func (c *clientStream) sendTable(t table) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hasEnded.Load() {
		return nil
	}
	c.seq += 1 + c.skipped.Swap(0)
	return c.ServerStream.SendMsg(&api.GadgetEvent{
		Type: api.EventTypeGadgetPayload, DataSourceID: c.sources[t.source], Payload: t.payload, Seq: c.seq,
	})
}

// end is called when the request is done. A message that waits for the client then fails.
func (c *clientStream) end() {
	c.hasEnded.Store(true)
	close(c.ended)
	c.backlog.remove(c)
}
