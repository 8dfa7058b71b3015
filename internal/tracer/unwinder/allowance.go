// SPDX-License-Identifier: Apache-2.0

package unwinder

import (
	"context"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
	"github.com/gpu-gadgets/gpu-gadgets/internal/throttle"
)

// newTenantsAllowances bounds the processor time for rules, whatever the files and the stacks of a tenant's
// processes are. Stacks that come in a pause are cut, with a frame that says why. The libraries of
// PyTorch take less than the burst.
func newTenantsAllowances() throttle.Allowances[procmaps.Tenant] {
	return throttle.Allowances[procmaps.Tenant]{Burst: 2 * time.Second, Share: 20}
}

// newAllowance bounds that for all tenants.
func newAllowance() throttle.Allowance {
	return throttle.Allowance{Burst: 10 * time.Second, Share: 10}
}

// wait is false if the context ended first.
func wait(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
