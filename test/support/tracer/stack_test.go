// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"runtime"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/bpftest"
)

// addPrivateStack is how the kernel's x86-64 compiler (since 6.13) adds the
// address of this CPU's area to that of a private stack: add r9, gs:[…].
var addPrivateStack = []byte{0x65, 0x4c, 0x03, 0x0c, 0x25}

// Two threads that run one program on one CPU would share a private stack.
func TestUprobeProgramsHaveNoPrivateStack(t *testing.T) {
	bpftest.RequireRoot(t)
	if runtime.GOARCH != "amd64" {
		t.Skip("the machine code looked for is x86-64's")
	}
	for mode := range uint32(3) { // stock, perf, multi: which programs are whole
		spec := bpftest.Spec(t, "../../../gadgets/cuda_alloc/program.bpf.c", "-mcpu=v3")
		require.NoError(t, spec.Variables["attach_mode"].Set(mode))
		largest := 0
		for name, program := range bpftest.LoadSpec(t, spec).Programs {
			if spec.Programs[name].Type != ebpf.Kprobe {
				continue
			}
			info, err := program.Info()
			require.NoError(t, err)
			code, ok := info.JitedInsns()
			if !ok || len(code) == 0 {
				t.Skip("the kernel does not show compiled programs (net.core.bpf_jit_enable, kptr_restrict)")
			}
			largest = max(largest, len(code))
			require.NotContains(t, string(code), string(addPrivateStack), "%s, mode %d", name, mode)
		}
		require.Greater(t, largest, 10000, "mode %d: no program is whole", mode)
	}
}
