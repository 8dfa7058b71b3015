// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/ig"
)

// Values of enum quota_table of bpf/process/quota.h.
const (
	QuotaThreads   = 17
	QuotaInstances = 18
	QuotaSpans     = 19
	QuotaOwners    = 20
	QuotaSums      = 21
	QuotaRules     = 22
	QuotaFacts     = 24
	QuotaOOMs      = 26
	QuotaPasses    = 27
	QuotaFailures  = 28
)

// Refused counts what all tenants were refused of a table of enum quota_table.
func (tr *Tracer) Refused(table int) (sum int) {
	tr.t.Helper()
	var quota struct { // struct quota
		Used    [32]int64
		Refused [32]uint64
		_       [18]uint32
	}
	var tenant uint64
	all := tr.Maps["quotas_by_tenant"].Iterate()
	for all.Next(&tenant, &quota) {
		sum += int(quota.Refused[table])
	}
	require.NoError(tr.t, all.Err())
	return sum
}

// Second is the number of what bpf/process/quota.h has as a second: 2^30 ns since boot.
func Second() int { return int(ig.SinceBoot() >> 30) }
