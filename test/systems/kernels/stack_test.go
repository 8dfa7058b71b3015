// SPDX-License-Identifier: Apache-2.0

package kernels

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/bpftest"
)

const (
	// A program and the functions that it calls share maxStack bytes, and each takes
	// whole blocks: of 32 bytes up to some release between 6.12 and 6.18, of 16 after
	// it (kernel/bpf/verifier.c, check_max_stack_depth()). A newer kernel accepts
	// programs that an older one refuses.
	maxStack   = 512
	stackBlock = 32
)

// function is one of a program, with its stack and its calls.
type function struct {
	stack int
	calls map[string]bool
}

// functionsOf finds the functions of a program, callbacks included.
func functionsOf(t *testing.T, program asm.Instructions) map[string]*function {
	t.Helper()
	all := map[string]*function{}
	var f *function
	copied := map[asm.Register]bool{} // registers that hold the frame pointer
	for _, ins := range program {
		if name := ins.Symbol(); name != "" && !strings.HasPrefix(name, "LBB") {
			f = &function{calls: map[string]bool{}}
			all[name] = f
		}
		require.NotNil(t, f, "the first instruction has no symbol")
		use := func(offset int) { f.stack = max(f.stack, -offset) }
		class := ins.OpCode.Class()
		switch {
		case ins.IsFunctionCall() || ins.IsFunctionReference():
			f.calls[ins.Reference()] = true
		case class.IsLoad() && ins.Src == asm.RFP:
			use(int(ins.Offset))
		case class.IsStore() && ins.Dst == asm.RFP:
			use(int(ins.Offset))
		case class == asm.ALU64Class && ins.OpCode.ALUOp() == asm.Mov:
			copied[ins.Dst] = ins.OpCode.Source() == asm.RegSource && ins.Src == asm.RFP
			continue
		case class == asm.ALU64Class && ins.OpCode.ALUOp() == asm.Add &&
			ins.OpCode.Source() == asm.ImmSource && copied[ins.Dst]:
			use(int(ins.Constant))
		}
		copied[ins.Dst] = false
	}
	return all
}

// deepest returns the maximum stack of a function and its callees, and the path there.
func deepest(all map[string]*function, name string) (int, []string) {
	f := all[name]
	most, way := 0, []string(nil)
	for callee := range f.calls {
		if bytes, names := deepest(all, callee); bytes > most {
			most, way = bytes, names
		}
	}
	own := (max(f.stack, 1) + stackBlock - 1) / stackBlock * stackBlock
	return most + own, append([]string{fmt.Sprintf("%s: %d", name, f.stack)}, way...)
}

// mostTaskValue is the largest value of a thread that Linux 6.19 and newer have memory for: 8 KiB
// (kmalloc_nolock() in mm/slub.c) with the header of a local storage's element, which was 72 to 136 bytes.
// The kernel makes a map with larger ones, but no value.
const mostTaskValue = 8<<10 - 136

// objects are those of all gadgets, with the compiler's flags.
func objects() map[string][]string {
	return map[string][]string{
		"cuda_alloc":             {"-mcpu=v3"},
		"cuda_alloc_linux_5_10":  {"-mcpu=v2", "-DLINUX_5_10"},
		"cuda_kernel":            {"-mcpu=v3"},
		"cuda_kernel_linux_5_10": {"-mcpu=v2", "-DLINUX_5_10"},
		"hip_alloc":              {"-mcpu=v3"},
		"hip_alloc_linux_5_10":   {"-mcpu=v2", "-DLINUX_5_10"},
		"hip_kernel":             {"-mcpu=v3"},
		"hip_kernel_linux_5_10":  {"-mcpu=v2", "-DLINUX_5_10"},
		"nccl_trace":             {"-mcpu=v3"},
		"nccl_trace_linux_5_10":  {"-mcpu=v2", "-DLINUX_5_10"},
		"py_stack":               {"-mcpu=v3"},
	}
}

func compiled(t *testing.T, name string, flags []string) *ebpf.CollectionSpec {
	t.Helper()
	source := "../../../gadgets/" + strings.TrimSuffix(name, "_linux_5_10") + "/program.bpf.c"
	spec, err := ebpf.LoadCollectionSpec(bpftest.Compile(t, source, flags...))
	require.NoError(t, err)
	return spec
}

func TestValuesOfThreadsFitIntoNewKernels(t *testing.T) {
	for name, flags := range objects() {
		found := 0
		for _, m := range compiled(t, name, flags).Maps {
			if m.Type == ebpf.TaskStorage {
				found++
				require.LessOrEqual(t, m.ValueSize, uint32(mostTaskValue), "%s of %s", m.Name, name)
			}
		}
		if !strings.HasSuffix(name, "_linux_5_10") {
			require.NotZero(t, found, name)
		}
	}
}

// The kernel makes a ring buffer only of a power of two of whole pages. arm64 has pages of up to 64 KiB.
func TestRingsFitIntoKernelsWithLargePages(t *testing.T) {
	const page = 64 << 10
	for name, flags := range objects() {
		for _, m := range compiled(t, name, flags).Maps {
			if m.Type == ebpf.RingBuf {
				isPower := m.MaxEntries&(m.MaxEntries-1) == 0
				require.True(t, isPower && m.MaxEntries >= page, "%s of %s has %d bytes", m.Name, name, m.MaxEntries)
			}
		}
	}
}

func TestStackIsEnoughForOldKernels(t *testing.T) {
	for name, flags := range objects() {
		t.Run(name, func(t *testing.T) {
			spec := compiled(t, name, flags)
			most := 0
			for _, program := range spec.Programs {
				bytes, way := deepest(functionsOf(t, program.Instructions), program.Name)
				require.LessOrEqual(t, bytes, maxStack, way)
				most = max(most, bytes)
			}
			t.Logf("at most %d bytes", most)
			require.Greater(t, most, maxStack/2, "the unwinder takes more: it was not found")
		})
	}
}
