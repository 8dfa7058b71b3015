// SPDX-License-Identifier: Apache-2.0

package native

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/tracer/unwinder"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/bpftest"
)

// What users set changes the programs: the verifier takes all of them with rules.
func TestProgramsWithRulesLoadHoweverTheyAreSet(t *testing.T) {
	bpftest.RequireRoot(t)
	settings := map[string]map[string]any{
		"default": {},
		"budget":  {"budget_ppm": uint32(10000), "sample": uint32(0)},
		"spans":   {"span_ids": true, "sample": uint32(100)},
		"all": {"budget_ppm": uint32(10000), "sample": uint32(100), "span_ids": true, "timeline_events": true,
			"events": true, "device_times": true},
	}
	for _, gadget := range []string{"cuda_alloc", "cuda_kernel", "nccl_trace", "hip_alloc"} {
		for mode, name := range []string{"stock ig", "perf", "multi"} {
			for _, what := range slices.Sorted(maps.Keys(settings)) {
				t.Run(gadget+", "+name+", "+what, func(t *testing.T) {
					loadWithRules(t, gadget, mode, settings[what])
				})
			}
		}
	}
}

// spec is a gadget's specification.
func spec(t *testing.T, gadget string) *ebpf.CollectionSpec {
	t.Helper()
	if dir := os.Getenv(bpftest.PrebuiltVariable); dir != "" {
		s, err := ebpf.LoadCollectionSpec(filepath.Join(dir, gadget+".o"))
		require.NoError(t, err)
		return s
	}
	return bpftest.Spec(t, "../../../gadgets/"+gadget+"/program.bpf.c", "-mcpu=v3")
}

func loadWithRules(t *testing.T, gadget string, mode int, settings map[string]any) {
	s := spec(t, gadget)
	require.NoError(t, s.Variables["attach_mode"].Set(uint32(mode)))
	require.NoError(t, s.Variables[unwinder.OnConstant].Set(unwinder.All))
	unwinder.Enlarge(s.Maps, unwinder.MinMemory)
	for variable, value := range settings { // each gadget has some of them
		if v := s.Variables[variable]; v != nil {
			require.NoError(t, v.Set(value), variable)
		}
	}
	// The hundreds of programs that only call these take none of the time of the verifier,
	// and much of that of the kernel when they are freed.
	for name := range s.Programs {
		if strings.HasPrefix(name, "enter_") || strings.HasPrefix(name, "exit_") {
			delete(s.Programs, name)
		}
	}
	bpftest.LoadSpec(t, s)
}
