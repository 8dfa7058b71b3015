// SPDX-License-Identifier: Apache-2.0

package launches

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/simulated"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/tracer"
)

// python runs a script with the library's path and other arguments until it ends.
func python(t *testing.T, script string, arguments ...string) {
	t.Helper()
	out, err := exec.Command("python3", append([]string{"-c", prelude + script}, arguments...)...).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

const prelude = `
import ctypes, sys
from ctypes import byref, c_char_p, c_size_t, c_uint, c_uint64, c_void_p
cuda = ctypes.CDLL(sys.argv[1], ctypes.RTLD_GLOBAL)
cuda.cuInit(0)
context, module = c_uint64(), c_uint64()
cuda.cuDevicePrimaryCtxRetain(byref(context), 0)
cuda.cuCtxSetCurrent(context)
cuda.cuModuleLoadData(byref(module), c_char_p(b"image"))
def get(name):
    f = c_uint64()
    cuda.cuModuleGetFunction(byref(f), module, c_char_p(name))
    return f
def launch(f):
    one = c_uint(1)
    return cuda.cuLaunchKernel(f, one, one, one, one, one, one, c_uint(0), c_uint64(0), None, None)
`

// launched is how often each kernel was, by the name that is known of it.
func (g *gadget) launched() map[string]uint64 {
	all := map[string]uint64{}
	for _, row := range g.rows() {
		if text(row.API[:]) != launchAPI {
			continue
		}
		name, isCut, ok := g.name(row.Function)
		switch {
		case !ok && row.Function&stub != 0:
			name = "stub"
		case !ok:
			name = "handle"
		case isCut:
			name += "…"
		}
		all[name] += row.Calls
	}
	return all
}

// TestInvalidNames: bytes that are not UTF-8 are kept; a name of 1 MB is cut and marked
// as such, and two kernels whose names begin alike stay two; a name that cannot be read
// is counted.
func TestInvalidNames(t *testing.T) {
	lib := simulated.DriverCopy(t)
	g := start(t, lib, tracer.Options{Offset: 10}, nil)
	python(t, `
for name in (b"\xff\xfe\x80 bad", b"k" * 1000000, b"k" * 1000000 + b"2", b"", b"x" * 2047, b"y" * 2048):
    launch(get(name))
`, lib)
	require.Equal(t, map[string]uint64{
		"\xff\xfe\x80 bad":              1,
		strings.Repeat("k", 2047) + "…": 2,
		"":                              1,
		strings.Repeat("x", 2047) + "…": 1, // whether it ends there is not known
		strings.Repeat("y", 2047) + "…": 1,
	}, g.launched())
	functions := map[uint64]bool{}
	for _, row := range g.rows() {
		functions[row.Function] = true
	}
	require.Len(t, functions, 7, "six kernels, and calls that have none")
	require.Empty(t, g.Drops())
}

// TestHandlesOfBefore: a kernel that was looked up before attach is identified by its
// handle, until its name is queried.
func TestHandlesOfBefore(t *testing.T) {
	lib := simulated.DriverCopy(t)
	cmd := exec.Command("python3", "-c", prelude+`
f = get(b"early")
print("ready", flush=True)
sys.stdin.readline()
launch(f)
name = c_char_p()
cuda.cuFuncGetName(byref(name), f)
launch(f)
`, lib)
	var g *gadget
	hold(t, cmd, func(string) { g = start(t, lib, tracer.Options{Offset: 10}, nil) })
	require.Equal(t, map[string]uint64{"handle": 1, "early": 1}, g.launched())
}

// TestDeviceOfBefore: the device of a context that is older than the attach is unknown
// until the process queries it.
func TestDeviceOfBefore(t *testing.T) {
	lib := simulated.DriverCopy(t)
	cmd := exec.Command("python3", "-c", prelude+`
f = get(b"kernel")
cuda.cuDevicePrimaryCtxRetain(byref(context), 1)
cuda.cuCtxSetCurrent(context)
print("ready", flush=True)
sys.stdin.readline()
launch(f)
launch(f)
device = c_uint(7)
assert cuda.cuCtxGetDevice(byref(device)) == 0 and device.value == 1
launch(f)
cuda.cuCtxPushCurrent_v2(context)
cuda.cuCtxGetDevice(byref(device))
cuda.cuCtxPopCurrent_v2(None)
launch(f)
cuda.cuCtxSetCurrent(context)
launch(f)
`, lib)
	cmd.Env = append(os.Environ(), "SIMCUDA_DEVICES=2")
	var g *gadget
	hold(t, cmd, func(string) { g = start(t, lib, tracer.Options{Offset: 10}, nil) })
	devices := map[int32]uint64{}
	for _, row := range g.rows() {
		devices[row.Device] += row.Calls
	}
	require.Equal(t, map[int32]uint64{-1: 2, 1: 3}, devices)
	require.Empty(t, g.Drops())
}

// runtimes builds the simulated runtime and cuBLAS against a copy of the driver.
func runtimes(t *testing.T, driver string) (cudart, cublas string) {
	t.Helper()
	cudart, cublas = filepath.Join(t.TempDir(), "libcudart.so.12"), filepath.Join(t.TempDir(), "libcublas.so.12")
	for path, flag := range map[string]string{cudart: "-DRUNTIME", cublas: "-UCUBLAS"} {
		out, err := exec.Command("gcc", "-O2", "-fPIC", "-shared", flag, "-o", path, "../../../examples/simcuda/runtime.c", driver).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	return cudart, cublas
}

// TestRuntimeNamesTheKernel: if the kernel's name is unknown, a launch by the runtime has
// the program's host stub; one that fails before it reaches the driver leaves nothing
// behind.
func TestRuntimeNamesTheKernel(t *testing.T) {
	lib := simulated.DriverCopy(t)
	cudart, cublas := runtimes(t, lib)
	g := &gadget{tracer.Attach(t, "cuda_kernel", map[string]string{"libcuda": lib, "libcudart": cudart, "libcublas": cublas}, tracer.Options{}), t}
	script := `
f = get(b"named")
cudart = ctypes.CDLL(sys.argv[2])
class Dim(ctypes.Structure):
    _fields_ = [("x", c_uint), ("y", c_uint), ("z", c_uint)]
def stub_launch(f, stub):
    cudart.simcudart_register(f)
    return cudart.cudaLaunchKernel(c_void_p(stub), Dim(4, 1, 1), Dim(32, 1, 1), None, c_size_t(0), c_uint64(0))
if stub_launch(f, 0x123456):
    sys.exit("launch")
other = c_uint64(0x5c0000000077)  # no kernel of the driver's: the call fails, and has a row
stub_launch(other, 0x123456)
stub_launch(other, 0)
launch(other)
`
	python(t, script, lib, cudart)
	got := map[string]uint64{}
	for _, row := range g.rows() {
		if text(row.API[:]) == launchAPI {
			name, _, _ := g.name(row.Function)
			if row.Function == stub|0x123456 {
				name = "stub"
			}
			got[name] += row.Calls
		}
	}
	// By the runtime, and later past it.
	require.Equal(t, map[string]uint64{"named": 1, "stub": 2}, got)
	require.Empty(t, g.Drops())
}

// TestLibrariesAreSpans: a call of cuBLAS is a row, its inner ones are not, and its calls
// to the driver are rows, too. Its own status codes have names.
func TestLibrariesAreSpans(t *testing.T) {
	lib := simulated.DriverCopy(t)
	cudart, cublas := runtimes(t, lib)
	g := &gadget{tracer.Attach(t, "cuda_kernel", map[string]string{"libcuda": lib, "libcudart": cudart, "libcublas": cublas}, tracer.Options{}), t}
	python(t, `
f = get(b"sgemm")
cublas = ctypes.CDLL(sys.argv[2])
for _ in range(3):
    if cublas.cublasGemmEx(c_uint64(1), f):
        sys.exit("gemm")
cublas.cublasSgemm_v2(c_uint64(1), f)
if cublas.cublasGemmEx(c_uint64(1), c_uint64(0)) != 7:
    sys.exit("status")
`, lib, cublas)
	got := map[string]uint64{}
	for _, row := range g.rows() {
		api := text(row.API[:])
		if row.Status != 0 {
			require.EqualValues(t, 7, row.Status)
			require.EqualValues(t, 10007, row.Error)
			api += " failed"
		}
		if strings.HasPrefix(api, "cublas") {
			require.Equal(t, "library", text(row.Operation[:]))
		}
		got[api] += row.Calls
	}
	require.Equal(t, map[string]uint64{
		"cublasGemmEx": 3, "cublasGemmEx failed": 1, "cublasSgemm_v2": 1,
		copyAPI: 4, launchAPI: 4, "cuModuleLoadData": 1, "cuModuleGetFunction": 1,
	}, got)
	require.Empty(t, g.Drops())
}

// TestStatusesOfLibrariesHaveNames: those of cuDNN 8 and 9, by the names that the enum
// has for Inspektor Gadget.
func TestStatusesOfLibrariesHaveNames(t *testing.T) {
	lib, cudnn := simulated.DriverCopy(t), filepath.Join(t.TempDir(), "libcudnn.so.9")
	source := filepath.Join(t.TempDir(), "cudnn.c")
	require.NoError(t, os.WriteFile(source, []byte("int cudnnBackendExecute(void *h, void *plan, long status) { return status; }\n"), 0o644))
	out, err := exec.Command("gcc", "-fPIC", "-shared", "-o", cudnn, source).CombinedOutput()
	require.NoError(t, err, "%s", out)
	names := map[uint64]string{}
	g := &gadget{tracer.Attach(t, "cuda_kernel", map[string]string{"libcuda": lib, "libcudnn": cudnn}, tracer.Options{
		Edit: func(spec *ebpf.CollectionSpec) {
			var enum *btf.Enum
			require.NoError(t, spec.Types.TypeByName("driver_error", &enum))
			for _, v := range enum.Values {
				names[v.Value] = v.Name
			}
		},
	}), t}
	python(t, `
cudnn = ctypes.CDLL(sys.argv[2])
for status in (0, 3, 6, 2000, 3014, 5001, 15):
    assert cudnn.cudnnBackendExecute(c_uint64(1), c_uint64(2), c_uint64(status)) == status
`, lib, cudnn)
	got := map[int32]string{}
	for _, row := range g.rows() {
		if text(row.API[:]) == "cudnnBackendExecute" {
			got[row.Status] = names[uint64(row.Error)]
		}
	}
	require.Equal(t, map[int32]string{
		0: "CUDA_SUCCESS",
		3: "CUDNN_STATUS_BAD_PARAM", 2000: "CUDNN_STATUS_BAD_PARAM", // of 8, and of 9
		6:    "CUDNN_STATUS_ARCH_MISMATCH",
		3014: "CUDNN_STATUS_NOT_SUPPORTED_INVALID_DYNAMIC_SHAPE",
		5001: "CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER",
		15:   "", // no version has it
	}, got)
}

// TestTableIsOfTheRealDriver: every function of the table that is missing in the newest
// available driver is known to be from a later one.
func TestTableIsOfTheRealDriver(t *testing.T) {
	found, _ := filepath.Glob("../../../build/fixtures/libcuda/root/usr/lib/*/nvidia/current/libcuda.so.*.*")
	if len(found) == 0 {
		t.Skip("no build/fixtures/libcuda: run test/support/fixtures/libcuda.sh")
	}
	there := tracer.Exports(t, found[0])
	b, err := os.ReadFile("../../../bpf/cuda/launch_apis.h")
	require.NoError(t, err)
	var missing []string
	for _, line := range strings.Split(string(b), "\n") {
		name, ok := strings.CutPrefix(strings.TrimSpace(line), "X(")
		name, _, _ = strings.Cut(name, ",")
		if ok && strings.HasPrefix(name, "cu") && strings.Contains(line, ", CALL_") && !strings.Contains(line, "X(lib") && !there[name] {
			missing = append(missing, name)
		}
	}
	require.Equal(t, []string{
		"cuMemcpyWithAttributesAsync", "cuMemcpyWithAttributesAsync_ptsz",
		"cuMemcpyBatchAsync", "cuMemcpyBatchAsync_ptsz", "cuMemcpyBatchAsync_v2", "cuMemcpyBatchAsync_v2_ptsz", "cuCtxSynchronize_v2",
		"cuFuncGetName", "cuKernelGetName", "cuStreamBeginCaptureToGraph", "cuStreamBeginCaptureToGraph_ptsz", "cuGraphAddNode_v2",
	}, missing)
}
