// SPDX-License-Identifier: Apache-2.0

package kernels

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/stretchr/testify/require"
)

// TestEntries: why package placement probes arm64's functions at their first instruction.
// That of libcuda is adrp, which is cheaper than one that the kernel must single-step;
// and if the function signs its return address, a return probe works there, before the
// signature.
func TestEntries(t *testing.T) {
	requireInside(t)
	if runtime.GOARCH != "arm64" {
		t.Skip("the functions are of arm64; this is ", runtime.GOARCH)
	}
	path := built(t, "build/entries")
	ex, err := link.OpenExecutable(path)
	require.NoError(t, err)
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type:         ebpf.Kprobe,
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
		License:      "Dual BSD/GPL",
	})
	require.NoError(t, err)
	defer prog.Close()
	w := launch(t, path)
	cost := func(name string) (best int64) {
		for i := range 5 {
			_, err := fmt.Fprintf(w.stdin, "%s 1000\n", name)
			require.NoError(t, err)
			var ns int64
			_, err = fmt.Sscanf(w.expect("ns"), `{"ns": %d}`, &ns)
			require.NoError(t, err)
			if i == 0 || ns < best {
				best = ns
			}
		}
		return best
	}
	entry := map[string]int64{}
	for _, name := range []string{"by_adrp", "by_stp", "by_mov", "by_nop", "by_bti", "by_paciasp"} {
		bare := cost(name)
		enter, err := ex.Uprobe(name, prog, nil)
		require.NoError(t, err)
		entry[name] = cost(name) - bare
		require.NoError(t, enter.Close())
		leave, err := ex.Uretprobe(name, prog, nil)
		require.NoError(t, err)
		returns := cost(name) - bare
		require.NoError(t, leave.Close())
		t.Logf("%s: a probe costs %d ns, one of the return %d ns", name, entry[name], returns)
	}
	require.Less(t, entry["by_adrp"], entry["by_stp"])
	require.Less(t, entry["by_adrp"], entry["by_mov"])
}
