// SPDX-License-Identifier: Apache-2.0

package native

import (
	"reflect"
	"strings"
	"testing"

	"github.com/cilium/ebpf/btf"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/elf/unwind"
	"github.com/gpu-gadgets/gpu-gadgets/internal/tracer/unwinder"
)

// What Go and C share: where each member of these structs is.
func TestLayoutsAreThoseOfC(t *testing.T) {
	for _, gadget := range []string{"cuda_alloc", "cuda_kernel", "nccl_trace", "hip_alloc", "py_stack"} {
		s := spec(t, gadget)
		for name, mirror := range map[string]reflect.Type{
			"unwind_page_key": reflect.TypeFor[unwinder.Key](),
			"unwind_miss":     reflect.TypeFor[unwinder.Miss](),
			"unwind_page":     reflect.TypeFor[unwinder.Page](),
			"unwind_rule":     reflect.TypeFor[unwind.Rule](),
		} {
			var of *btf.Struct
			require.NoError(t, s.Types.TypeByName(name, &of))
			require.EqualValues(t, mirror.Size(), of.Size, name)
			require.Len(t, of.Members, mirror.NumField(), name)
			for i, m := range of.Members {
				f := mirror.Field(i)
				require.EqualValues(t, f.Offset, m.Offset.Bytes(), "%s of %s", m.Name, name)
				if f.Name != "_" {
					require.Equal(t, strings.ReplaceAll(m.Name, "_", ""), strings.ToLower(f.Name), name)
				}
			}
		}
		// The numbers of the kinds, too.
		var kinds *btf.Enum
		require.NoError(t, s.Types.TypeByName("unwind_kind", &kinds))
		want := map[string]unwind.Kind{
			"UNWIND_NONE": unwind.None, "UNWIND_SP": unwind.FromSP, "UNWIND_FP": unwind.FromFP,
			"UNWIND_WORD_AT_SP": unwind.FromWordAtSP, "UNWIND_WORD_AT_FP": unwind.FromWordAtFP,
			"UNWIND_PLT": unwind.PLT, "UNWIND_SIGNAL": unwind.Signal, "UNWIND_STOP": unwind.Stop, "UNWIND_FRAME": unwind.Frame,
		}
		for _, v := range kinds.Values {
			if kind, ok := want[v.Name]; ok {
				require.EqualValues(t, kind, v.Value, v.Name)
				delete(want, v.Name)
			}
		}
		require.Empty(t, want)

		// Off, unused maps take no room.
		for _, name := range []string{unwinder.PagesMap, unwinder.AskedMap} {
			require.EqualValues(t, 1, s.Maps[name].MaxEntries)
		}
	}
}
