// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/ig/attachpoint"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/bpftest"
)

// The programs that measure their own cost load in each way of attaching: the code only
// exists with a budget.
func TestProgramsWithABudgetLoad(t *testing.T) {
	bpftest.RequireRoot(t)
	for _, name := range []string{"cuda_alloc", "cuda_kernel"} {
		for _, mode := range []uint32{attachpoint.Perf, attachpoint.Multi} {
			spec := bpftest.Spec(t, "../../../gadgets/"+name+"/program.bpf.c", "-mcpu=v3")
			require.NoError(t, spec.Variables["attach_mode"].Set(mode))
			require.NoError(t, spec.Variables["budget_ppm"].Set(uint32(10_000)))
			bpftest.LoadSpec(t, spec)
		}
	}
}
