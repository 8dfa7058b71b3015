// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"encoding/binary"
	"testing"

	"github.com/cilium/ebpf/btf"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/bpftest"
)

func TestWireRowIsTheGadgetsRow(t *testing.T) {
	spec := bpftest.Spec(t, "../../../gadgets/cuda_alloc/program.bpf.c", "-mcpu=v3")
	var row *btf.Struct
	require.NoError(t, spec.Types.TypeByName("alloc", &row))
	require.EqualValues(t, row.Size, binary.Size(wireRow{}))
}
