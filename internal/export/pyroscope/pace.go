// SPDX-License-Identifier: Apache-2.0

package pyroscope

import (
	"context"
	"sync"
	"time"
)

const (
	// pace is how many bytes, before compression, are sent in a second to a server that has refused some
	// for its rate: half of what a tenant may send by default (distributor.ingestion-rate-limit-mb).
	pace = 2 << 20
	// keepPace is for how long after that.
	keepPace = 10 * time.Minute
)

// pacer spaces requests once a server has refused some for its rate. The requests of a window are ready at
// the same time, and of one that is refused, some series are stored, and again when it is repeated.
type pacer struct {
	mu            sync.Mutex
	refused, next time.Time
}

// limited notes that the server has refused a request for its rate.
func (p *pacer) limited() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refused = time.Now()
}

// wait returns when a request of so many bytes can be sent, or ctx has ended.
func (p *pacer) wait(ctx context.Context, bytes int64) {
	p.mu.Lock()
	now := time.Now()
	if p.refused.IsZero() || now.Sub(p.refused) > keepPace {
		p.mu.Unlock()
		return
	}
	begin := now
	if p.next.After(now) {
		begin = p.next
	}
	p.next = begin.Add(time.Duration(bytes) * time.Second / pace)
	p.mu.Unlock()
	select {
	case <-time.After(begin.Sub(now)):
	case <-ctx.Done():
	}
}
