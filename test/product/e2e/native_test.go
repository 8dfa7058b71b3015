// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/loopback"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/simulated"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject/flames"
)

var update = flag.Bool("update", false, "write docs/pictures/native.svg")

// paths are the callers of each allocation of server.cpp, root first. Those of the C and C++
// libraries are left out: their names are another machine's.
var paths = []string{
	"_start main serving::Server::run() serving::Server::handle() serving::Engine<serving::Transformer>::step(…) std::_Function_handler<…>::_M_invoke(…) serving::Engine<serving::Transformer>::prefill(unsigned long) serving::KVCache::grow(unsigned long) serving::Buffer::Buffer(unsigned long)",
	"_start main serving::Server::run() serving::Server::handle() serving::Engine<serving::Transformer>::step(…) std::_Function_handler<…>::_M_invoke(…) serving::Engine<serving::Transformer>::decode(unsigned long) serving::Transformer::grow(unsigned long) serving::Buffer::Buffer(unsigned long)",
	"std::thread::_State_impl<…>::_M_run() serving::KVCache::grow(unsigned long) serving::Buffer::Buffer(unsigned long)",
}

// own are the functions of a folded stack that are the server's.
func own(folded string) string {
	var names []string
	for _, label := range strings.Split(folded, "; ") {
		if name, isOwn := strings.CutSuffix(label, " (server)"); isOwn {
			names = append(names, name)
		}
	}
	return strings.Join(names, " ")
}

// TestAProgramInCppWithoutFramePointersHasItsWholeStack by its unwind information, and only by that.
func TestAProgramInCppWithoutFramePointersHasItsWholeStack(t *testing.T) {
	t.Parallel()
	server := filepath.Join(t.TempDir(), "server")
	out, err := exec.Command("g++", "-O2", "-fomit-frame-pointer", "-pthread", "-o", server, "testdata/server.cpp", "-ldl").CombinedOutput()
	require.NoError(t, err, "%s", out)
	for stacks, want := range map[string][]string{"by default": paths, "pointers": {"serving::Buffer::Buffer(unsigned long)"}} {
		t.Run(stacks, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(server, simulated.Driver(t))
			cmd.Env = append(os.Environ(), "SIMCUDA_INIT_MS=0")
			w := subject.Start(t, cmd)
			w.Expect("ready")
			address := loopback.FreeAddress(t)
			args := []string{"--pid", fmt.Sprint(w.PID()), "--annotate", "allocs:fetch-interval=100ms",
				"--metrics-listen", address, "--metrics-nvml", "off"}
			if stacks != "by default" {
				args = append(args, "--native-stacks", stacks)
			}
			r := start(t, args...)
			r.waitAttached(w.PID())
			served := uint64(0)
			serve := func() []row {
				require.Equal(t, "served", w.Request("request"))
				served++
				return r.waitRows("all allocations", w.PID(), allocs(3*served))
			}
			for range 20 { // the rules of code are read when a stack has met it
				serve()
			}
			before := map[string]uint64{}
			for _, row := range serve() {
				before[row.Stack] = row.AllocObjects
			}
			var met []row // by one request
			var got []string
			for _, row := range serve() {
				if row.AllocObjects > before[row.Stack] {
					met, got = append(met, row), append(got, own(row.Stack))
				}
			}
			require.ElementsMatch(t, want, got)
			for _, row := range met {
				require.NotContains(t, row.Stack, "[", "a stack that is cut says so")
				require.True(t, strings.HasSuffix(row.Stack, "; cuMemAlloc_v2 (libcuda.so.1)"), row.Stack)
			}
			requireRules(t, address, stacks != "pointers")
			code, _ := r.interrupt()
			require.Zero(t, code, r.errors())
			lost := r.lost()
			delete(lost, "native_not_loaded") // of the first stacks
			require.Empty(t, lost)
			w.End()
			if *update && stacks != "pointers" {
				weights := map[string]uint64{}
				for _, row := range met {
					weights[row.Stack] = row.AllocBytes
				}
				require.NoError(t, os.WriteFile("../../../docs/pictures/native.svg", flames.SVG(weights, "(server)", 1), 0o644))
			}
		})
	}
}

// requireRules checks what metrics say of the memory for unwind information.
func requireRules(t *testing.T, address string, areLoaded bool) {
	t.Helper()
	all, err := loopback.Scrape(t, address)
	require.NoError(t, err)
	got := map[string]float64{}
	for _, s := range all {
		if strings.HasPrefix(s.Name, "gpu_gadgets_unwind_") {
			require.True(t, s.Has(`gadget="cuda_alloc"`), "%v", s)
			got[s.Name] = s.Value
		}
		if s.Name == "gpu_gadgets_drops_total" && s.Has(`reason="native_not_loaded"`) {
			got[s.Name] = s.Value
		}
	}
	if !areLoaded {
		for name := range got {
			require.NotContains(t, name, "unwind")
		}
		return
	}
	require.EqualValues(t, 64<<20, got["gpu_gadgets_unwind_memory_limit_bytes"], "%v", got)
	require.Greater(t, got["gpu_gadgets_unwind_memory_bytes"], 10.0*512, "%v", got)
	require.Less(t, got["gpu_gadgets_unwind_memory_bytes"], 4.0*(1<<20), "%v", got)
	require.NotZero(t, got["gpu_gadgets_unwind_missed_total"], "%v", got)
	require.Contains(t, got, "gpu_gadgets_unwind_evicted_total")
	require.Zero(t, got["gpu_gadgets_unwind_evicted_total"], "%v", got)
	require.Contains(t, got, "gpu_gadgets_unwind_failed_total")
	require.NotZero(t, got["gpu_gadgets_drops_total"], "the first stacks")
}
