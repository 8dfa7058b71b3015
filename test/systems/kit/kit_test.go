// SPDX-License-Identifier: Apache-2.0

// Package kit tests build/gpu-kit (make gpu-kit) as it is used: copied to a bare machine,
// here a root directory with busybox and the simulated driver.
package kit

import (
	"debug/elf"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/bpftest"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/simulated"
)

var update = flag.Bool("update", false, "write testdata/report.golden")

// line is one of report.json.
type line struct {
	Step, Name, Expected, Measured, Verdict, Why string
	Varies                                       bool
}

// kit is the directory that make gpu-kit has made.
func kit(t *testing.T) string {
	t.Helper()
	bpftest.RequireRoot(t)
	dir := filepath.Join(simulated.Root(), "build/gpu-kit")
	for _, name := range []string{"run.sh", "gpu-kit", "workload", "places.json"} {
		require.FileExists(t, filepath.Join(dir, name), "run make gpu-kit")
	}
	return dir
}

// libraries are the simulated driver, runtime and NCCL.
func libraries(t *testing.T) []string {
	t.Helper()
	return []string{
		simulated.Driver(t), filepath.Join(simulated.Build(t, "simcudart"), "libcudart.so.12"),
		filepath.Join(simulated.Build(t, "simnccl"), "libnccl.so.2"),
	}
}

// run runs the kit in a root directory and returns the lines of its report.
func run(t *testing.T, root string, env []string, args ...string) (lines []line, progress string) {
	t.Helper()
	argv := enter(root, append([]string{"-out", "/report"}, args...)...)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append([]string{"PATH=/usr/bin:/bin", "LD_LIBRARY_PATH=/simulated", "SIMCUDA_JOURNAL=/journal", "SIMNCCL_JOURNAL=/collectives"}, env...)
	for _, dir := range []string{"journal", "collectives"} {
		require.NoError(t, os.MkdirAll(filepath.Join(root, dir), 0o755))
	}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	text, err := os.ReadFile(filepath.Join(root, "report/report.json"))
	require.NoError(t, err, string(out))
	var report struct{ Lines []line }
	require.NoError(t, json.Unmarshal(text, &report))
	markdown, err := os.ReadFile(filepath.Join(root, "report/report.md"))
	require.NoError(t, err)
	for _, l := range report.Lines {
		require.Contains(t, string(markdown), "| "+strings.ReplaceAll(l.Name, "|", `\|`)+" |", "Markdown has every line, too")
	}
	left, err := os.ReadDir(filepath.Join(root, "tmp"))
	require.NoError(t, err)
	require.Empty(t, left, "files are left")
	return report.Lines, string(out)
}

// golden is a report without the figures that are other ones in each run.
func golden(lines []line) string {
	var b strings.Builder
	for _, l := range lines {
		if l.Varies {
			l.Measured = "<measured>"
			if l.Verdict != "not possible" && l.Verdict != "recorded" {
				l.Verdict = "same or different"
			}
		}
		fmt.Fprintf(&b, "%s | %s | %s | %s | %s", l.Step, l.Name, l.Expected, l.Measured, l.Verdict)
		if l.Why != "" {
			b.WriteString(": " + l.Why)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// stepsOf are the lines of some steps.
func stepsOf(lines []line, steps ...string) []line {
	return slices.DeleteFunc(slices.Clone(lines), func(l line) bool { return !slices.Contains(steps, l.Step) })
}

func readGolden(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("testdata/report.golden")
	require.NoError(t, err)
	return string(b)
}

// The kit as it is shipped, with the ig-gpu in it.
func TestKitVerifiesEverythingOnTheSimulatedDriver(t *testing.T) {
	dir := kit(t)
	require.FileExists(t, filepath.Join(dir, "ig-gpu.zst"), "run make gpu-kit")
	lines, progress := run(t, bareRoot(t, dir, libraries(t)...), nil)
	for _, l := range lines {
		if l.Verdict == "different" && !l.Varies {
			t.Errorf("different: %s: %s: expected %q, measured %q", l.Step, l.Name, l.Expected, l.Measured)
		}
	}
	if *update {
		require.NoError(t, os.WriteFile("testdata/report.golden", []byte(golden(lines)), 0o644))
	}
	require.Equal(t, readGolden(t), golden(lines), progress)
}

// ig-gpu's counts in the golden file match the driver's journal.
func TestComparisonsAreOfTheDriversOwnCounts(t *testing.T) {
	lines, _ := run(t, withStandIn(t), nil, "-ig-gpu", "/standin", "-only", strings.Join(compared, ","))
	var want strings.Builder
	for _, l := range strings.SplitAfter(readGolden(t), "\n") {
		if step, _, _ := strings.Cut(l, " | "); slices.Contains(compared, step) {
			want.WriteString(l)
		}
	}
	require.Equal(t, want.String(), golden(stepsOf(lines, compared...)))
}

// compared are the steps with verdicts that depend on ig-gpu's counts of calls.
var compared = []string{"memory", "launches", "late", "oom", "devices", "nccl"}

// With an ig-gpu that adds one to every figure, no verdict on its figures is "same".
func TestVerdictsChangeWhenIgGpuIsWrong(t *testing.T) {
	steps := append([]string{"overhead"}, compared...)
	lines, _ := run(t, withStandIn(t), []string{"STANDIN_WRONG=1"}, "-ig-gpu", "/standin", "-only", strings.Join(steps, ","))
	for _, l := range stepsOf(lines, steps...) {
		// How many refusals there were is a count of rows; times and the driver's own bytes
		// are not ig-gpu's.
		if l.Varies || strings.HasPrefix(l.Name, "cuMemGetInfo") || l.Name == "refused allocations" || l.Name == "cuGraphLaunch, nodes" {
			continue
		}
		require.NotEqual(t, "same", l.Verdict, "%s: %s: %s", l.Step, l.Name, l.Measured)
	}
}

// withStandIn is a root with the stand-in as ig-gpu.
func withStandIn(t *testing.T) (root string) {
	t.Helper()
	root = bareRoot(t, kit(t), libraries(t)...)
	build := exec.Command("go", "build", "-o", filepath.Join(root, "standin"), "./standin")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
	return root
}

// A driver and a runtime that lie change the verdicts on the false values, and no others.
func TestVerdictsChangeWhenTheDriverLies(t *testing.T) {
	root := withStandIn(t)
	build := filepath.Join(simulated.Root(), "build")
	for name, behind := range map[string]string{
		"lies": filepath.Join(build, "simcuda/libcuda.so.1"), "lies_runtime": filepath.Join(build, "simcudart/libcudart.so.12"),
	} {
		out, err := exec.Command("gcc", "-shared", "-fPIC", "-O1", "-o", filepath.Join(root, "simulated", name+".so"),
			"testdata/"+name+".c", behind).CombinedOutput()
		require.NoError(t, err, string(out))
	}
	otherShape(t, filepath.Join(root, "simulated/libcuda.so.1"), "cuMemAllocHost") // it is never called

	lines, _ := run(t, root, []string{"GPU_KIT_LIBCUDA=/simulated/lies.so", "GPU_KIT_CUDART=/simulated/lies_runtime.so"},
		"-ig-gpu", "/standin", "-only", "entries,memory,launches,runtime")
	verdicts := map[string]string{}
	for _, l := range lines {
		verdicts[l.Name] = l.Verdict
	}
	for _, name := range []string{
		"what they begin with", "where the probe is",
		"functions for which cuGetProcAddress gives one that is not probed",
		"cuMemGetInfo: device, MiB",
		"cuda_alloc: device",         // allocates more than requested
		"cuLaunchKernelEx kit_empty", // launches nothing
		"cudaMalloc",
	} {
		require.Equal(t, "different", verdicts[name], name)
	}
	for _, name := range []string{"cuda_alloc: vmm", "cuda_alloc: host", "cuLaunchKernel kit_empty", "cudaGetDevice"} {
		require.Equal(t, "same", verdicts[name], name)
	}
}

// otherShape writes another beginning to an exported function: push %rbp.
func otherShape(t *testing.T, path, name string) {
	t.Helper()
	f, err := elf.Open(path)
	require.NoError(t, err)
	defer f.Close()
	symbols, err := f.DynamicSymbols()
	require.NoError(t, err)
	i := slices.IndexFunc(symbols, func(s elf.Symbol) bool { return s.Name == name })
	require.NotEqual(t, -1, i)
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	section := f.Sections[symbols[i].Section]
	b[symbols[i].Value-section.Addr+section.Offset] = 0x55
	require.NoError(t, os.WriteFile(path, b, 0o755))
}

// Without a driver nothing is verified, and nothing fails.
func TestKitReportsThatThereIsNoDriver(t *testing.T) {
	lines, _ := run(t, bareRoot(t, kit(t)), nil, "-ig-gpu", "/bin/false")
	for _, l := range lines {
		if l.Step == "clean" && l.Name == "processes that are left" {
			require.Equal(t, "same", l.Verdict)
			continue
		}
		require.Equal(t, "not possible", l.Verdict, "%s: %s", l.Step, l.Name)
		require.NotEmpty(t, l.Why)
	}
	require.Len(t, lines, 19, "each step has a line")
}

// A failing step is a line of the report, and the others run.
func TestKitSurvivesAnIgGpuThatFails(t *testing.T) {
	lines, _ := run(t, bareRoot(t, kit(t), libraries(t)...), nil, "-ig-gpu", "/bin/false", "-only", "memory,runtime")
	require.Contains(t, golden(lines), "memory | the step ends | yes | cuda_alloc: ig-gpu ended:")
	require.Contains(t, golden(lines), "runtime | cudaMalloc | cuMemAlloc_v2 1 | cuMemAlloc_v2 1 | same")
}

// A kit that is terminated during a step has a report, and leaves nothing behind.
func TestKitThatRunsOutOfTimeCleansUp(t *testing.T) {
	lines, _ := run(t, withStandIn(t), nil, "-ig-gpu", "/standin", "-limit", "1s", "-only", "throughput")
	last := golden(stepsOf(lines, "throughput", "clean"))
	require.Contains(t, last, "the time is over")
	require.NotContains(t, last, "different")
	require.Contains(t, last, "clean | processes that are left | 0 | 0 | same")
}
