// SPDX-License-Identifier: Apache-2.0

package nccl

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/ig/attachpoint"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/bpftest"
)

const source = "../../../gadgets/nccl_trace/program.bpf.c"

// TestProgramsVerify: in the ways of attaching that no other test uses; the verifier
// skips the programs of the others.
func TestProgramsVerify(t *testing.T) {
	for name, mode := range map[string]uint32{"stock": 0, "perf": attachpoint.Perf} {
		t.Run(name, func(t *testing.T) {
			bpftest.RequireRoot(t)
			spec := bpftest.Spec(t, source, "-mcpu=v3")
			require.NoError(t, spec.Variables["attach_mode"].Set(mode))
			require.NoError(t, spec.Variables["events"].Set(true))
			bpftest.LoadSpec(t, spec)
		})
	}
}
