// SPDX-License-Identifier: Apache-2.0

package launches

import (
	"encoding/binary"
	"testing"

	"github.com/cilium/ebpf/btf"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/elf/usdt"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/bpftest"
)

// TestPlacesOfArgumentsAreAsInC: user space writes what the programs read.
func TestPlacesOfArgumentsAreAsInC(t *testing.T) {
	spec := bpftest.Spec(t, "../../../gadgets/cuda_kernel/program.bpf.c", "-mcpu=v3")
	var site, argument *btf.Struct
	require.NoError(t, spec.Types.TypeByName("usdt_site", &site))
	require.NoError(t, spec.Types.TypeByName("usdt_argument", &argument))
	all := []usdt.Argument{{Kind: usdt.Register}, {
		Kind: usdt.Memory, Value: -0x1122334455, Base: 0x66, Index: 0x77, Shift: 3, Bytes: 4, Signed: true,
	}}
	b := usdt.Encode(all)
	require.Len(t, b, int(site.Size))
	require.EqualValues(t, usdt.MaxArguments*argument.Size, site.Size)
	b = b[argument.Size:]
	got := map[string]int64{}
	for _, m := range argument.Members {
		size, err := btf.Sizeof(m.Type)
		require.NoError(t, err)
		var word [8]byte
		copy(word[:], b[m.Offset.Bytes():int(m.Offset.Bytes())+size])
		got[m.Name] = int64(binary.LittleEndian.Uint64(word[:]))
	}
	require.Equal(t, map[string]int64{
		"value": -0x1122334455, "base": 0x66, "index": 0x77, "kind": int64(usdt.Memory), "bytes": 4, "is_signed": 1, "shift": 3,
	}, got)
}
