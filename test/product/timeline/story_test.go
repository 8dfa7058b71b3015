// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const mainThread = "main thread"

// TestDecodeLoop: each of 200 steps is there, and each call is in its Python method.
func TestDecodeLoop(t *testing.T) {
	const steps, layers = 200, 16
	w := run(t, "decode.py", "--steps", "200", "--layers", "16")
	page := filepath.Join(t.TempDir(), "page.html")
	tr := w.trace("--timeline-html", page, "--gpu-idle", "3")
	w.work()
	f := tr.end()
	require.Empty(t, f.Metadata["lost"])
	require.Contains(t, tr.log.String(), "what the GPU waited for, an estimate")
	html, err := os.ReadFile(page)
	require.NoError(t, err)
	require.Contains(t, string(html), "Model.forward")

	truth := map[string][]note{}
	for _, n := range w.notes() {
		truth[n.Name] = append(truth[n.Name], n)
	}
	calls := map[string][]slice{
		"Engine.upload": f.named(mainThread, "cuMemcpyHtoDAsync_v2"),
		"Model.forward": f.of(mainThread, "launch"),
		"Engine.sample": append(f.named(mainThread, "cuMemcpyDtoHAsync_v2"), f.named(mainThread, "cuStreamSynchronize")...),
	}
	names := map[string]int{}
	for _, c := range calls["Model.forward"] {
		names[c.name]++
	}
	require.Equal(t, map[string]int{"rms_norm": steps * layers, "flash_attention": steps * layers, "gemm_bf16": steps * layers}, names)
	for method, perStep := range map[string]int{"Engine.upload": 1, "Model.forward": 3 * layers, "Engine.sample": 2} {
		shown := f.named(mainThread, method)
		require.Len(t, shown, steps, method)
		require.Len(t, truth[method], steps)
		require.Len(t, calls[method], steps*perStep)
		for n, s := range shown {
			// Within the times that the program reports, and in the order of the steps.
			require.LessOrEqual(t, truth[method][n].Start, s.start, "%s, step %d", method, n)
			require.LessOrEqual(t, s.end, truth[method][n].End, "%s, step %d", method, n)
			inside := 0
			for _, c := range calls[method] {
				if s.start <= c.start && c.end <= s.end {
					inside++
				}
			}
			require.Equal(t, perStep, inside, "calls of %s in step %d", method, n)
		}
	}
	for n := range steps {
		upload, forward, sample := f.named(mainThread, "Engine.upload")[n], f.named(mainThread, "Model.forward")[n], f.named(mainThread, "Engine.sample")[n]
		require.LessOrEqual(t, upload.end, forward.start)
		require.LessOrEqual(t, forward.end, sample.start)
	}
	// A wait has an arrow from the previous submission to the stream.
	require.Equal(t, steps, f.arrows)
	streams := 0
	for track, all := range f.tracks {
		if len(track) > 6 && track[:6] == "stream" {
			streams += len(all)
		}
	}
	require.Equal(t, steps*(2+3*layers), streams)
}

// TestModelLoading: the phases from disk to the GPU, from host activity and copies. The
// program reads the clock before and after a phase: if another process runs in between,
// the two differ, and the run is repeated.
func TestModelLoading(t *testing.T) {
	var wrong []string
	for range 4 {
		if wrong = load(t); len(wrong) == 0 {
			return
		}
		t.Log(wrong)
	}
	t.Errorf("durations are not within 5 %%: %v", wrong)
}

// load checks one run and returns errors in the durations.
func load(t *testing.T) (wrong []string) {
	const size = 256 << 20
	w := run(t, "loading.py", filepath.Join(t.TempDir(), "weights.bin"), "--mib", "256", "--link", "1")
	tr := w.trace("--with", "syscalls,memory")
	w.work()
	f := tr.end()
	truth := map[string]note{}
	for _, n := range w.notes() {
		truth[n.Name] = n
		require.EqualValues(t, size, n.Bytes)
	}

	// From disk: the calls that read this file.
	var disk phase
	for _, s := range f.of("system calls", "syscall") {
		if strings.HasPrefix(s.name, "pread") && s.args["file"] == "weights.bin" {
			disk.add(s)
		}
	}
	wrong = append(wrong, disk.check(t, truth["read_from_disk"], size)...)

	// By page faults: the steps in which resident pages of files grow.
	var faults phase
	resident := f.counters["resident, of files"]
	during := truth["copy_to_pinned"]
	for n := 1; n < len(resident); n++ {
		if at := uint64(resident[n][0]); resident[n][1] > resident[n-1][1] && at >= during.Start && at <= during.End {
			faults.from(at)
			faults.end = at
			faults.bytes += resident[n][1] - resident[n-1][1]
		}
	}
	wrong = append(wrong, faults.check(t, during, size)...)

	// To the GPU.
	var gpu phase
	for _, s := range f.named(mainThread, "cuMemcpyHtoDAsync_v2") {
		gpu.add(s)
	}
	for _, s := range f.named(mainThread, "cuStreamSynchronize") {
		gpu.end = max(gpu.end, s.end)
	}
	wrong = append(wrong, gpu.check(t, truth["copy_to_gpu"], size)...)

	// The rates have the same bytes.
	for name, want := range map[string]float64{"read GB/s": size, "HtoD GB/s": size, "mapped GB/s": size} {
		points := f.counters[name]
		sum := 0.0
		for n := 1; n < len(points); n++ {
			sum += points[n-1][1] * (points[n][0] - points[n-1][0])
		}
		require.InEpsilon(t, want, sum, 0.05, name)
	}
	return wrong
}

// phase is a time and the bytes moved in it.
type phase struct {
	start, end uint64
	bytes      float64
}

func (p *phase) from(at uint64) {
	if p.start == 0 || at < p.start {
		p.start = at
	}
}

func (p *phase) add(s slice) {
	p.from(s.start)
	p.end = max(p.end, s.end)
	p.bytes += s.args["bytes"].(float64)
}

// check compares with the program's own report: within 5 %. Bytes must match; it returns
// the durations that do not.
func (p *phase) check(t *testing.T, truth note, bytes float64) []string {
	t.Helper()
	require.InEpsilon(t, bytes, p.bytes, 0.05, "bytes of %s", truth.Name)
	require.GreaterOrEqual(t, p.start, truth.Start)
	require.LessOrEqual(t, p.end, truth.End)
	took, want := float64(p.end-p.start), float64(truth.End-truth.Start)
	if math.Abs(took-want) > 0.05*want {
		return []string{fmt.Sprintf("%s took %.4f s, %.4f s are shown", truth.Name, want/1e9, took/1e9)}
	}
	return nil
}
