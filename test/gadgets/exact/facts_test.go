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

// A container that fills the tables of contexts, handles and mappings leaves the last quarter of each to others.
func TestATenantLeavesFactsToOthers(t *testing.T) {
	const size, many, few = 2048, 2000, 8
	lib := simulated.DriverCopy(t)
	program := filepath.Join(t.TempDir(), "facts")
	out, err := exec.Command("cc", "-O2", "-fno-omit-frame-pointer", "-Wall", "-Werror",
		"-I", filepath.Join(simulated.Root(), "examples/simcuda"), "-o", program, "testdata/facts.c", "-ldl").CombinedOutput()
	require.NoError(t, err, string(out))
	tr := tracer.Start(t, lib, tracer.Options{Flags: []string{
		fmt.Sprint("-DMAX_CONTEXTS=", size), "-DMAX_PRIMARIES=8", fmt.Sprint("-DMAX_MAPPINGS=", size), fmt.Sprint("-DMAX_HANDLES=", size),
	}})
	tenant := func(count int) *subject.Process {
		cmd := exec.Command(program, lib, fmt.Sprint(count))
		cmd.Env = append(os.Environ(), "SIMCUDA_DEVICES=8", "SIMCUDA_INIT_MS=0", "SIMCUDA_CONTEXT_MS=0")
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
		p := subject.Start(t, cmd)
		p.Expect("ready")
		p.Say("")
		p.Expect("ready")
		return p
	}
	names := []string{"device_by_context", "primary_by_device", "handles_by_number", "mappings_by_address"}
	hostile := tenant(many)
	process := slices.Collect(maps.Keys(entries(t, tr, names[0])))[0]
	honest := tenant(few)
	require.NotEqual(t, procmaps.TenantOf("/proc", uint32(hostile.PID())), procmaps.TenantOf("/proc", uint32(honest.PID())))
	its, others := map[string]int{}, map[string]int{}
	read := func() {
		for _, name := range names {
			for of, n := range entries(t, tr, name) {
				if of == process {
					its[name] = n
				} else {
					others[name] = n
				}
			}
		}
	}
	read()
	const most = size / 4 * 3
	require.Equal(t, map[string]int{"device_by_context": most, "primary_by_device": 6, "handles_by_number": most, "mappings_by_address": most}, its)
	// Primary contexts are contexts, too.
	require.Equal(t, map[string]int{"device_by_context": few + 8, "primary_by_device": 2, "handles_by_number": few, "mappings_by_address": few}, others)

	// What it frees makes room for its own.
	hostile.Say("")
	hostile.Expect("ready")
	read()
	require.Equal(t, most, its["handles_by_number"])
	require.Equal(t, most, its["mappings_by_address"])
	hostile.End()
	honest.End()

	// What processes leave is deleted, rows or not.
	reaper := reap.New(reap.FindMaps(func(name string) *ebpf.Map { return tr.Maps[name] }), time.Hour)
	_, err = reaper.Pass(ig.SinceBoot())
	require.NoError(t, err)
	for _, name := range names {
		require.Zero(t, tr.Len(name), name)
	}
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
