// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"fmt"
	"time"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
)

const (
	// Quiet is the pause after which all replayed packets are assumed to have
	// arrived. Rows are emitted each second.
	Quiet = 500 * time.Millisecond
	// settleLimit is for instances that are never quiet.
	settleLimit = 10 * time.Second
	// replayLimit is more packets than a daemon replays, with those of a few seconds.
	replayLimit = ring + 64
)

// Connection is one attachment to an instance. It is for one goroutine.
type Connection struct {
	feed    *Feed
	sources map[uint32]source // by the id that packets name
	hasRows bool

	began   time.Time
	settled bool
	last    uint32 // Seq of the newest packet

	replayed int // packets before it has settled

	instance string // see ig.AnnotationInstance
}

// Take processes one packet. The daemon is not trusted to send what it announced.
func (c *Connection) Take(event *api.GadgetEvent, now time.Time) (err error) {
	defer func() {
		// Inspektor Gadget's accessors do not check lengths.
		if cause := recover(); cause != nil {
			err = fmt.Errorf("a packet does not have the announced fields: %v", cause)
		}
	}()
	c.last = event.GetSeq()
	s := c.sources[event.GetDataSourceID()] // nil: not announced, or not for us
	if s != nil {
		if err := s.decode(event.GetPayload(), c.settled); err != nil {
			return err
		}
	}
	switch {
	case !c.settled:
		c.replayed++
		if now.Sub(c.began) > settleLimit || c.replayed > replayLimit {
			return c.Settle(now)
		}
	case s != nil:
		c.feed.seen++
		return s.read(now)
	}
	return nil
}

// Settled reports whether packets are processed as they arrive.
func (c *Connection) Settled() bool { return c.settled }

// Settle must be called when nothing has arrived for Quiet.
func (c *Connection) Settle(now time.Time) (err error) {
	if c.settled {
		return nil
	}
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("a packet does not have the announced fields: %v", cause)
		}
	}()
	c.settled = true
	c.feed.begin(c.instance, uint64(c.last))
	for _, s := range c.sources {
		if err := s.read(now); err != nil {
			return err
		}
	}
	return nil
}
