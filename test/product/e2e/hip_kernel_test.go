// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/bpftest"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/simulated"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject"
)

// launched is a row of hip_kernel.
type launched struct {
	Operation, Kernel, API, Direction, Error, Frame string
	Calls, Bytes, Blocks, Threads                   uint64
	Device                                          int32
	Grid                                            uint32 `json:"grid_y"`
}

// callsOf returns the last rows of a run that has ended, by function.
func callsOf(t *testing.T, r *run) map[string]launched {
	t.Helper()
	all := map[string]launched{}
	for _, row := range rowsOf(t, r) {
		all[row.API] = row
	}
	return all
}

// rowsOf returns the last rows of a run that has ended, each once.
func rowsOf(t *testing.T, r *run) (last []launched) {
	t.Helper()
	for line := range bytes.Lines(r.stdout.Bytes()) {
		if !bytes.HasPrefix(line, []byte("[")) || !bytes.Contains(line, []byte(`"operation"`)) {
			continue
		}
		last = nil
		require.NoError(t, json.Unmarshal(line, &last), "%s", line)
	}
	return last
}

// The kernel's name is the one that the program has registered, demangled.
func TestLaunchesOfHIPAreShownByLine(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("HIP is for x86-64")
	}
	for _, mode := range []string{"multi", "perf"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			library := simulated.Copy(t, t.TempDir(), "simhip", "libamdhip64.so.6")
			w := subject.Start(t, exec.Command("python3", "testdata/hip.py", library))
			require.Equal(t, "ready", w.Line())
			do := func(result int, format string, args ...any) {
				require.Equal(t, fmt.Sprintf("ok %d", result), w.Request(format, args...))
			}
			r := launch(t, exec.Command(program(t), "run", "hip_kernel", "--pid", fmt.Sprint(w.PID()), "--attach-mode", mode,
				"-o", "calls:json,attachments:json,drops:json"))
			require.Equal(t, filepath.Base(library), filepath.Base(r.waitAttached(w.PID()).Path))
			const unregistered = 98 // hipErrorInvalidDeviceFunction
			do(unregistered, "launch")
			do(0, "register")
			do(0, "device 1")
			for range 3 {
				do(0, "copy 4096")
			}
			do(0, "wait")
			code, _ := r.interrupt()
			require.Zero(t, code)
			require.Empty(t, r.lost())
			calls := callsOf(t, r)
			require.Equal(t, launched{Operation: "launch", API: "hipLaunchKernel", Kernel: "[kernel 0x5000]", Calls: 1, Blocks: 8,
				Threads: 512, Grid: 2, Device: -1, Error: "hipErrorInvalidDeviceFunction", Frame: "launch (hip.py:59)"}, calls["hipLaunchKernel"])
			require.Equal(t, launched{Operation: "copy", API: "hipMemcpy", Direction: "HtoD", Calls: 3, Bytes: 3 * 4096, Device: 1,
				Frame: "copy (hip.py:63)"}, calls["hipMemcpy"])
			require.Equal(t, "wait", calls["hipDeviceSynchronize"].Operation)
		})
	}
}

// The gadget is older than the program: it has seen the registration, and knows the device.
func TestKernelsOfHIPHaveTheirRegisteredNames(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("HIP is for x86-64")
	}
	library := simulated.Copy(t, t.TempDir(), "simhip", "libamdhip64.so.6")
	w := subject.Start(t, exec.Command("python3", "testdata/hip.py", library))
	require.Equal(t, "ready", w.Line())
	r := launch(t, exec.Command(program(t), "run", "hip_kernel", "--pid", fmt.Sprint(w.PID()), "-o", "calls:json,attachments:json,drops:json"))
	r.waitAttached(w.PID())
	for _, command := range []string{"register", "launch", "launch"} {
		require.Equal(t, "ok 0", w.Request("%s", command))
	}
	code, _ := r.interrupt()
	require.Zero(t, code)
	require.Empty(t, r.lost())
	row := callsOf(t, r)["hipLaunchKernel"]
	require.EqualValues(t, 2, row.Calls)
	require.Equal(t, "at::native::vectorized(float*, int)", row.Kernel)
}

// The program has registered its kernels before: they are found by the symbols of their handles,
// and those that a program without symbols has keep their addresses.
func TestKernelsThatHIPRegisteredBeforeAttachHaveNames(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("HIP is for x86-64")
	}
	for name, c := range map[string]struct {
		link []string
		want []string
	}{
		"symbols":             {nil, []string{"(anonymous namespace)::local(int)", "plain", "void ns::gemm<float>(float*)"}},
		"exported ones alone": {[]string{"-s", "-rdynamic"}, []string{"[kernel]", "plain", "void ns::gemm<float>(float*)"}},
		"no symbols":          {[]string{"-s"}, []string{"[kernel]", "[kernel]", "[kernel]"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			library := simulated.Copy(t, t.TempDir(), "simhip", "libamdhip64.so.6")
			w := subject.Start(t, exec.Command(hipProgram(t, library, c.link...)))
			require.Equal(t, "ready", w.Line())
			r := launch(t, exec.Command(program(t), "run", "hip_kernel", "--pid", fmt.Sprint(w.PID()),
				"-o", "calls:json,attachments:json,drops:json"))
			r.waitAttached(w.PID())
			for range 2 {
				require.Equal(t, "ok 0", w.Request("launch"))
			}
			code, _ := r.interrupt()
			require.Zero(t, code)
			lost := r.lost()
			delete(lost, "native_not_loaded") // of the first stacks of a program without Python
			require.Empty(t, lost)
			calls := map[string]uint64{} // the first stacks may be cut: rows of their own
			for _, row := range rowsOf(t, r) {
				calls[row.Kernel] += row.Calls
			}
			var got []string
			for kernel, n := range calls {
				require.EqualValues(t, 2, n, kernel)
				got = append(got, regexp.MustCompile(`^\[kernel 0x[0-9a-f]+\]$`).ReplaceAllString(kernel, "[kernel]"))
			}
			slices.Sort(got)
			require.Equal(t, c.want, got)
		})
	}
}

// hipProgram compiles testdata/kernels.hip for the processor alone: no code for a GPU is needed.
func hipProgram(t *testing.T, library string, link ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kernels")
	for _, command := range [][]string{
		{bpftest.Compiler, "-x", "hip", "--cuda-host-only", "-nogpuinc", "-nogpulib", "-nostdinc++", "--offload-arch=gfx90a", "-O1", "-fPIE",
			"-Xclang", "-fcuda-include-gpubinary", "-Xclang", "testdata/kernels.hip", // in place of the code for a GPU
			"-c", "testdata/kernels.hip", "-o", path + ".o"},
		append([]string{"gcc", "-pie", "-o", path, path + ".o", library, "-Wl,-rpath," + filepath.Dir(library)}, link...),
	} {
		out, err := exec.Command(command[0], command[1:]...).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	return path
}
