// SPDX-License-Identifier: Apache-2.0

package native

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/simulated"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/tracer"
)

// interpreted calls the driver from Python, 200 times, and then shows what it has mapped.
const interpreted = `
import ctypes, sys, time
cuda = ctypes.CDLL(sys.argv[1])
context, p = ctypes.c_void_p(), ctypes.c_uint64()
def work():
    return cuda.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t(4096))
assert not (cuda.cuInit(0) or cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0))
for i in range(200):
    assert not work()
    time.sleep(0.005) # rules are loaded meanwhile
print(open("/proc/self/maps").read())
`

// Where Python frames follow, the walk ends with the first frame of the interpreter: so what is
// above it makes no further stacks, and takes no time.
func TestTheWalkEndsAtTheInterpreter(t *testing.T) {
	library := simulated.DriverCopy(t)
	tr, _ := start(t, library, memory)
	cmd := exec.Command("python3", "-c", interpreted, library)
	cmd.Env = append(os.Environ(), "SIMCUDA_INIT_MS=0")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)

	complete, all := 0, 0
	for _, r := range tr.Rows() {
		if r.Kind == tracer.KindContext {
			continue
		}
		n := int(r.AllocObjects)
		all += n
		require.NotEmpty(t, r.Python)
		inPython := 0
		for i, address := range r.Native {
			if isInterpreter(t, string(out), address-1) {
				inPython++
				assert.Equal(t, len(r.Native)-1, i, "frames after the interpreter's first")
			}
		}
		switch flags := stack.Flags(r.Flags) & why; flags {
		case 0:
			complete += n
			assert.Equal(t, 1, inPython, "%d native frames", len(r.Native))
			assert.Greater(t, len(r.Native), 3, "ctypes calls by libffi")
		case stack.NativeNotLoaded, stack.NativeBusy:
			assert.LessOrEqual(t, inPython, 1)
		default:
			assert.Fail(t, "cut", "by %d after %d", flags, len(r.Native))
		}
	}
	t.Logf("%d of %d are complete", complete, all)
	assert.Equal(t, 200, all)
	assert.Greater(t, complete, 100)
}

// isInterpreter looks an address up in a maps file.
func isInterpreter(t *testing.T, maps string, address uint64) bool {
	t.Helper()
	for line := range strings.Lines(maps) {
		fields := strings.Fields(line)
		if len(fields) < 6 {
			continue
		}
		from, to, _ := strings.Cut(fields[0], "-")
		begin, err1 := strconv.ParseUint(from, 16, 64)
		end, err2 := strconv.ParseUint(to, 16, 64)
		if err1 != nil || err2 != nil || address < begin || address >= end {
			continue
		}
		return hasRuntime(fields[5])
	}
	return false
}

// hasRuntime: a file that exports _PyRuntime is the interpreter.
func hasRuntime(path string) bool {
	if !strings.Contains(filepath.Base(path), "python") {
		return false
	}
	f, err := elf.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	symbols, _ := f.DynamicSymbols()
	for _, s := range symbols {
		if s.Name == "_PyRuntime" && s.Section != elf.SHN_UNDEF {
			return true
		}
	}
	return false
}
