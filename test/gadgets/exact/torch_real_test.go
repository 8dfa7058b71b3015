// SPDX-License-Identifier: Apache-2.0

package exact

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/compare"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/simulated"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/tracer"
)

// torchVariable has "VERSION DIRECTORY" pairs of real libraries: `make test-torch`
// fetches them, 160 MB.
const torchVariable = "TORCH_LIBRARIES"

// reports calls libc10's functions as PyTorch's allocators do: (void *, long, …, Device),
// where a Device is {int8 type, int8 index}; CUDA is 1.
const reports = `
import ctypes, json, os, sys
lib, kind = ctypes.CDLL(sys.argv[1]), sys.argv[2]
usage = lib["_ZN3c1027reportMemoryUsageToProfilerEPvl%sNS_6DeviceE" % kind]
oom = lib["_ZN3c1027reportOutOfMemoryToProfilerEl%sNS_6DeviceE" % kind]
cuda1, cpu = 1 | 1 << 8, 0
allocated = 0
def report(pointer, size, device=cuda1):
    global allocated
    allocated += size if device != cpu else 0
    usage(ctypes.c_void_p(pointer), ctypes.c_long(size), ctypes.c_ulong(allocated),
          ctypes.c_ulong(2 << 20), ctypes.c_uint16(device))
def keep():
    for i in 1, 2, 3:
        report(0x7f0000000000 + i * 4096, i * 1024)
def passing():
    report(0x7f0000100000, 4096)
    report(0x7f0000100000, -4096)
def other():
    report(0x7f0000200000, 777, cpu)
keep(), passing(), other()
oom(ctypes.c_long(1 << 40), ctypes.c_ulong(allocated), ctypes.c_ulong(2 << 20), ctypes.c_uint16(cuda1))
print(json.dumps({"holding": [os.getpid()]}), flush=True)
sys.stdin.readline()
`

// TestRealTorchIsFollowed: the functions of real versions of libc10.so are found, and
// their arguments are read correctly. No GPU is needed: the test calls them instead of
// the allocators.
func TestRealTorchIsFollowed(t *testing.T) {
	pairs := strings.Fields(os.Getenv(torchVariable))
	if len(pairs) == 0 {
		t.Skipf("%s is not set: make test-torch sets it", torchVariable)
	}
	require.Zero(t, len(pairs)%2, torchVariable)
	for i := 0; i < len(pairs); i += 2 {
		version, dir := pairs[i], filepath.Join(pairs[i+1], "usr/lib/x86_64-linux-gnu")
		t.Run(version, func(t *testing.T) {
			libraries, err := filepath.Glob(filepath.Join(dir, "libc10.so.*"))
			require.NoError(t, err)
			require.NotEmpty(t, libraries, dir)
			libc10 := libraries[len(libraries)-1]
			kind := "mm"
			if strings.HasPrefix(version, "1.") {
				kind = "ll"
			}
			requireReports(t, dir, kind)
			if strings.HasSuffix(version, "-cuda") {
				return // its libc10.so wants all of CUDA
			}

			tr := tracer.Start(t, simulated.DriverCopy(t), tracer.Options{Offset: 10})
			tr.AttachTorch(libc10)
			cmd := withLibraries(t, pairs[i+1], "python3", "-c", reports, libc10, kind)
			hold(t, cmd, func() {
				type sums struct{ alloc, inuse, objects int64 }
				have := map[string]sums{}
				for _, r := range kinds(got(tr.Rows()), true) {
					require.EqualValues(t, 1, r.Device)
					require.Len(t, r.Stack, 3, "%+v: its stack is report, who calls it, and the module", r)
					require.Equal(t, "report", r.Stack[0].Function)
					have[r.Stack[1].Function] = sums{r.AllocBytes, r.InUseBytes, r.AllocObjects}
				}
				require.Equal(t, map[string]sums{"keep": {6144, 6144, 3}, "passing": {4096, 0, 1}}, have)
				p := pools(t, tr)
				require.Len(t, p, 1)
				require.EqualValues(t, 6144, p[1].Allocated)
				require.EqualValues(t, 2<<20, p[1].Reserved)
				require.EqualValues(t, 1, p[1].OOMs)
			})
			require.Empty(t, tr.Drops())
			require.Eventually(t, func() bool { return tr.OOMs() == 1 }, time.Minute, time.Millisecond)
			require.Zero(t, compare.Total(kinds(got(tr.Rows()), true)).InUseBytes)
		})
	}
}

// withLibraries returns a command that runs with the C library and the loader of another
// suite, unpacked at root, in its own mount namespace.
func withLibraries(t *testing.T, root, program string, args ...string) *exec.Cmd {
	t.Helper()
	path, err := exec.Command(program, "-c", "import sys; print(sys.executable)").Output()
	require.NoError(t, err)
	const script = `set -eu
loader=
for dir in lib usr/lib; do
	[ ! -e "$1/$dir/x86_64-linux-gnu/ld-linux-x86-64.so.2" ] || loader=$1/$dir/x86_64-linux-gnu/ld-linux-x86-64.so.2
done
[ -n "$loader" ] || { echo "no loader in $1" >&2; exit 1; }
mount --bind "$loader" "$(readlink -f /lib64/ld-linux-x86-64.so.2)"
LD_LIBRARY_PATH=$1/lib/x86_64-linux-gnu:$1/usr/lib/x86_64-linux-gnu
export LD_LIBRARY_PATH
shift
exec "$@"`
	return exec.Command("unshare", append([]string{"-m", "sh", "-c", script, "sh", root, strings.TrimSpace(string(path))}, args...)...)
}

// requireReports: libc10.so defines the functions, and an allocator for CUDA, where there
// is one, calls them.
func requireReports(t *testing.T, dir, kind string) {
	t.Helper()
	for pattern, imported := range map[string]bool{"libc10.so.*": false, "libc10_cuda.so.*": true} {
		paths, err := filepath.Glob(filepath.Join(dir, pattern))
		require.NoError(t, err)
		for _, path := range paths {
			f, err := elf.Open(path)
			require.NoError(t, err)
			defer f.Close()
			symbols, err := f.DynamicSymbols()
			require.NoError(t, err)
			for _, name := range []string{"_ZN3c1027reportMemoryUsageToProfilerEPvl" + kind + "NS_6DeviceE",
				"_ZN3c1027reportOutOfMemoryToProfilerEl" + kind + "NS_6DeviceE"} {
				found := false
				for _, s := range symbols {
					found = found || s.Name == name && imported == (s.Section == elf.SHN_UNDEF)
				}
				require.True(t, found, "%s in %s", name, path)
			}
		}
	}
}
