// SPDX-License-Identifier: Apache-2.0

package ranks

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/collective"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
)

// The processes of a container that have loaded NCCL leave room to those of another one.
func TestATenantLeavesProcessesToOthers(t *testing.T) {
	l := late{attached: map[uint32]attached{}}
	fill := func(tenant procmaps.Tenant) (n int) {
		for l.hasRoom(tenant) {
			l.attached[uint32(len(l.attached))] = attached{since: 1, tenant: tenant}
			n++
		}
		return n
	}
	require.Equal(t, maxStanding-maxStanding/4, fill(1))
	require.Equal(t, maxStanding/4, fill(2))
	require.Zero(t, fill(3))
}

// The summary has verdicts of each container, whichever has most.
func TestTheSummaryHasEachContainersVerdicts(t *testing.T) {
	i := &instance{processes: map[uint64]*process{1: {mntns: 10}, 2: {mntns: 20}}}
	verdict := func(process, hash uint64) collective.Verdict {
		return collective.Verdict{Communicator: collective.Communicator{Hash: hash},
			Missing: []collective.Culprit{{Process: collective.Process{ID: process}}}}
	}
	for hash := range uint64(100) {
		i.remember([]collective.Verdict{verdict(1, hash)})
	}
	for hash := range uint64(3) {
		i.remember([]collective.Verdict{verdict(2, 1000+hash)})
	}
	require.Len(t, i.events, maxTold)
	its := map[uint64]int{}
	for _, e := range i.events {
		its[e.mntns]++
	}
	require.Equal(t, map[uint64]int{10: maxTold - 3, 20: 3}, its)
	require.Zero(t, i.events[0].Communicator.Hash, "the first one stays")
	require.Equal(t, 93, i.untold)
}

// Of many suspects of one container, some of another one are read with the first ones.
func TestSuspectsOfEachContainerAreRead(t *testing.T) {
	read := make(chan []uint32, 1)
	i := &instance{cfg: Config{Dump: func(_ context.Context, _ string, pids []uint32) (map[Thread]Trace, error) {
		read <- pids
		return nil, nil
	}}, processes: map[uint64]*process{}, out: &output{}}
	var suspects []collective.Process
	for n := range uint64(100) {
		i.processes[n] = &process{pid: uint32(n), mntns: 10, changed: 1}
		suspects = append(suspects, collective.Process{ID: n, PID: uint32(n)})
	}
	i.processes[500] = &process{pid: 500, mntns: 20, changed: 1}
	suspects = append(suspects, collective.Process{ID: 500, PID: 500})
	i.dump(t.Context(), suspects, nil, collective.Time(100*time.Second))
	pids := <-read
	i.wait.Wait()
	require.Len(t, pids, maxDumped)
	require.Contains(t, pids, uint32(500))
}
