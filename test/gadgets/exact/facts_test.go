// SPDX-License-Identifier: Apache-2.0

package exact

import (
	"encoding/binary"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/ig"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
	"github.com/gpu-gadgets/gpu-gadgets/operators/decode/reap"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/simulated"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/tracer"
)

// Sizes of the tables in these tests, and what one container may have of each.
const (
	tenantSize  = 2048
	tenantShare = tenantSize / 4 * 3
)

// tenants compiles a program of testdata, and returns what starts it in a container of its own.
func tenants(t *testing.T, lib, name string, args ...string) func(count int) *subject.Process {
	t.Helper()
	program := filepath.Join(t.TempDir(), name)
	out, err := exec.Command("cc", "-O2", "-fno-omit-frame-pointer", "-Wall", "-Werror",
		"-I", filepath.Join(simulated.Root(), "examples/simcuda"), "-o", program, "testdata/"+name+".c", "-ldl", "-lpthread").CombinedOutput()
	require.NoError(t, err, string(out))
	return func(count int) *subject.Process {
		cmd := exec.Command(program, append([]string{lib, fmt.Sprint(count)}, args...)...)
		cmd.Env = append(os.Environ(), "SIMCUDA_DEVICES=8", "SIMCUDA_INIT_MS=0", "SIMCUDA_CONTEXT_MS=0")
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
		p := subject.Start(t, cmd)
		p.Expect("ready")
		next(p)
		return p
	}
}

// next lets a tenant make its next step.
func next(p *subject.Process) {
	p.Say("")
	p.Expect("ready")
}

// requireNothingLeft requires that what processes leave is deleted, rows or not.
func requireNothingLeft(t *testing.T, tr *tracer.Tracer, names []string) {
	t.Helper()
	reaper := reap.New(reap.FindMaps(func(name string) *ebpf.Map { return tr.Maps[name] }), time.Hour)
	_, err := reaper.Pass(ig.SinceBoot())
	require.NoError(t, err)
	for _, name := range names {
		require.Zero(t, tr.Len(name), name)
	}
}

// A container that fills the tables of contexts, handles and mappings leaves the last quarter of each to others.
func TestATenantLeavesFactsToOthers(t *testing.T) {
	t.Run("newest", func(t *testing.T) { requireFactsAreShared(t, tracer.Options{}) })
	t.Run("Linux 5.10", func(t *testing.T) {
		requireOldPrograms(t)
		requireFactsAreShared(t, tracer.Options{Linux510: true}, "instances_by_number")
	})
}

// requireFactsAreShared runs two tenants. `destroyed` are tables of contexts that were destroyed.
func requireFactsAreShared(t *testing.T, o tracer.Options, destroyed ...string) {
	const many, few = 2000, 8
	lib := simulated.DriverCopy(t)
	var args []string
	if destroyed != nil {
		args = []string{"destroy"}
	}
	start := tenants(t, lib, "facts", args...)
	for _, table := range []string{"CONTEXTS", "MAPPINGS", "HANDLES", "INSTANCES"} {
		o.Flags = append(o.Flags, fmt.Sprintf("-DMAX_%s=%d", table, tenantSize))
	}
	o.Flags = append(o.Flags, "-DMAX_PRIMARIES=8")
	tr := tracer.Start(t, lib, o)
	names := []string{"device_by_context", "primary_by_device", "handles_by_number", "mappings_by_address"}
	hostile := start(many)
	process := slices.Collect(maps.Keys(entries(t, tr, names[0])))[0]
	honest := start(few)
	require.NotEqual(t, procmaps.TenantOf("/proc", uint32(hostile.PID())), procmaps.TenantOf("/proc", uint32(honest.PID())))
	read := func(names []string) (its, others map[string]int) {
		its, others = map[string]int{}, map[string]int{}
		for _, name := range names {
			for of, n := range entries(t, tr, name) {
				if of == process {
					its[name] = n
				} else {
					others[name] = n
				}
			}
		}
		return its, others
	}
	its, others := read(names)
	require.Equal(t, map[string]int{"device_by_context": tenantShare, "primary_by_device": 6,
		"handles_by_number": tenantShare, "mappings_by_address": tenantShare}, its)
	// Primary contexts are contexts, too.
	require.Equal(t, map[string]int{"device_by_context": few + 8, "primary_by_device": 2, "handles_by_number": few, "mappings_by_address": few}, others)

	// What it frees makes room for its own.
	next(hostile)
	next(honest)
	its, others = read(append(names, destroyed...))
	require.Equal(t, tenantShare, its["handles_by_number"])
	require.Equal(t, tenantShare, its["mappings_by_address"])
	for _, name := range destroyed {
		require.Equal(t, tenantShare, its[name])
		require.Equal(t, 2*few, others[name], "a context's own, and one since the call that destroyed it")
		require.Positive(t, tr.Refused(tracer.QuotaInstances))
	}
	hostile.End()
	honest.End()
	requireNothingLeft(t, tr, append(names, destroyed...))
}

// Before Linux 6.0 the state of threads is in a table. A container that has as many as fit leaves the
// last quarter to others.
func TestATenantLeavesThreadsToOthers(t *testing.T) {
	requireOldPrograms(t)
	const size, many, few = 64, 100, 8
	lib := simulated.DriverCopy(t)
	start := tenants(t, lib, "threads")
	tr := tracer.Start(t, lib, tracer.Options{Linux510: true, Flags: []string{fmt.Sprint("-DMAX_THREADS=", size)}})
	hostile := start(many)
	require.Equal(t, size/4*3, tr.Len("thread_by_task"))
	require.Positive(t, tr.Refused(tracer.QuotaThreads))
	honest := start(few)
	require.Equal(t, size/4*3+few+1, tr.Len("thread_by_task"), "with its main thread")
	allocations := func(pid int) (n uint64) {
		for _, row := range tr.RowsOf(pid) {
			n += row.AllocObjects
		}
		return n
	}
	require.EqualValues(t, few, allocations(honest.PID()))

	// Those that ended make room.
	next(hostile)
	next(honest)
	require.Equal(t, 2, tr.Len("thread_by_task"))
	hostile.End()
	honest.End()
	requireNothingLeft(t, tr, []string{"thread_by_task"})
}

// entries counts those of a map by the process with which their keys begin.
func entries(t *testing.T, tr *tracer.Tracer, name string) map[uint64]int {
	t.Helper()
	n := map[uint64]int{}
	var key, value []byte
	it := tr.Maps[name].Iterate()
	for it.Next(&key, &value) {
		n[binary.NativeEndian.Uint64(key)]++
	}
	require.NoError(t, it.Err())
	return n
}
