// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/simulated"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject"
)

// vendors is a process with the libraries of two vendors, or "-" for none.
func vendors(t *testing.T, cuda, hip string) *subject.Process {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		t.Skip("HIP is for x86-64")
	}
	p := subject.Start(t, exec.Command("python3", "testdata/vendors.py", cuda, hip))
	require.Equal(t, "ready", p.Line())
	return p
}

// watch runs a gadget on processes.
func watch(t *testing.T, name string, pids ...int) *run {
	t.Helper()
	list := strings.Trim(strings.ReplaceAll(fmt.Sprint(pids), " ", ","), "[]")
	return launch(t, exec.Command(program(t), "run", name, "--pid", list, "-o", "allocs:json,attachments:json,drops:json"))
}

// One process has both libraries, and another one only that of the other vendor: each gadget has
// its own vendor's memory, all of it.
func TestGadgetsOfTwoVendorsStayApart(t *testing.T) {
	cuda := simulated.DriverCopy(t)
	hip := simulated.Copy(t, t.TempDir(), "simhip", "libamdhip64.so.6")
	both, amd, nvidia := vendors(t, cuda, hip), vendors(t, "-", hip), vendors(t, cuda, "-")
	all := []*subject.Process{both, amd, nvidia}
	runs := map[string]*run{}
	for name, users := range map[string][]*subject.Process{"cuda_alloc": {both, nvidia}, "hip_alloc": {both, amd}} {
		runs[name] = watch(t, name, both.PID(), amd.PID(), nvidia.PID())
		for _, p := range users {
			runs[name].waitAttached(p.PID())
		}
	}
	for range 3 {
		for _, p := range all {
			require.Equal(t, "ok 0", p.Request(""))
		}
	}
	for name, users := range map[string][]*subject.Process{"cuda_alloc": {both, nvidia}, "hip_alloc": {both, amd}} {
		for _, p := range users {
			runs[name].waitRows(name, p.PID(), func(rows []row) bool {
				var bytes uint64
				for _, each := range rows {
					if each.Kind == "device" {
						bytes += each.InuseBytes
					}
				}
				return bytes == 3*mib
			})
		}
	}
	for name, other := range map[string]*subject.Process{"cuda_alloc": amd, "hip_alloc": nvidia} {
		require.Empty(t, runs[name].last(other.PID()), name)
		code, _ := runs[name].interrupt()
		require.Zero(t, code)
		require.Empty(t, runs[name].lost(), name)
		require.LessOrEqual(t, strings.Count(runs[name].errors(), "\n"), 1, runs[name].errors())
	}
}

// Functions that a version of the library does not have are left out, with one line.
func TestLibraryOfHIPThatHasFewFunctions(t *testing.T) {
	library := filepath.Join(t.TempDir(), "libamdhip64.so.4")
	out, err := exec.Command("cc", "-shared", "-fPIC", "-O1", "-o", library, "testdata/oldhip.c").CombinedOutput()
	require.NoError(t, err, "%s", out)
	p := vendors(t, "-", library)
	r := watch(t, "hip_alloc", p.PID())
	r.waitAttached(p.PID())
	require.Equal(t, "ok 0", p.Request(""))
	r.waitRows("the allocation", p.PID(), func(rows []row) bool { return len(rows) == 1 && rows[0].InuseBytes == mib })
	code, _ := r.interrupt()
	require.Zero(t, code)
	require.Empty(t, r.lost())
	t.Log(r.errors())
	require.LessOrEqual(t, strings.Count(r.errors(), "\n"), 1, r.errors())
}

// A process without the library of the gadget's vendor: one line says so.
func TestProcessOfTheOtherVendor(t *testing.T) {
	p := vendors(t, simulated.DriverCopy(t), "-")
	r := watch(t, "hip_alloc", p.PID())
	require.Eventually(t, func() bool { return strings.Contains(r.errors(), "no selected process has mapped libamdhip64.so*") },
		waitLimit, 300*time.Millisecond)
	require.Equal(t, "ok 0", p.Request(""))
	code, _ := r.interrupt()
	require.Zero(t, code)
	t.Log(r.errors())
	require.Equal(t, 1, strings.Count(r.errors(), "\n"), r.errors())
	require.Empty(t, r.lost())
	require.Empty(t, r.last(p.PID()))
}
