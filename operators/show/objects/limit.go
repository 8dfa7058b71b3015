// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"

	"github.com/gpu-gadgets/gpu-gadgets/internal/throttle"
)

const (
	paramBurst = "json-burst"

	// together is how many containers may have all of their rows at a time. A process can make mount
	// namespaces of its own, by which containers are distinguished.
	together = 4
	// maxTenants bounds those that are remembered.
	maxTenants = 1024
)

// burstParams are for logs that are rotated: what one container causes must not take the lines of others.
func burstParams() api.Params {
	return api.Params{{Key: paramBurst, Title: "Rows at once", DefaultValue: "0", TypeHint: api.TypeUint32,
		Description: "Rows of events that a container may have printed as JSON at once, and one per second after that, of all containers " +
			"four times as many; left_out of the next row is how many were not printed (0: print all)"}}
}

// limit bounds the rows of events. nil has none.
type limit struct {
	mu      sync.Mutex
	of      throttle.Allowances[uint64] // by mount namespace
	all     throttle.Allowance
	leftOut int // since the last row that was printed
}

// newLimit reads the parameter.
func newLimit(value string) (*limit, error) {
	if value == "" || value == "0" {
		return nil, nil
	}
	rows, err := strconv.ParseUint(value, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("--%s: want a number of rows up to 65535, not %q", paramBurst, value)
	}
	burst := time.Duration(rows-1) * time.Second
	return &limit{of: throttle.Allowances[uint64]{Burst: burst, Share: 1}, all: throttle.Allowance{Burst: burst + time.Second*(together-1)/together, Share: 1}}, nil
}

// pass reports whether a row of a mount namespace may be printed, and how many were not before it.
func (l *limit) pass(tenant uint64, now time.Time) (leftOut int, ok bool) {
	if l == nil {
		return 0, true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.of.Len() >= maxTenants {
		l.of.ForgetPaid(now)
	}
	if l.of.Pause(tenant, now) > 0 || l.all.Pause(now) > 0 {
		l.leftOut++
		return 0, false
	}
	l.of.Take(tenant, time.Second, now)
	l.all.Take(time.Second/together, now)
	leftOut, l.leftOut = l.leftOut, 0
	return leftOut, true
}

// rest is how many rows were left out after the last one that was printed.
func (l *limit) rest() int {
	if l == nil {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.leftOut
}
