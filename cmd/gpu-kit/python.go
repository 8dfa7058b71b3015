// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/cmd/gpu-kit/internal/gadget"
	"github.com/gpu-gadgets/gpu-gadgets/cmd/gpu-kit/internal/lockstep"
	"github.com/gpu-gadgets/gpu-gadgets/cmd/gpu-kit/internal/report"
)

// script starts a workload in Python; the directory is the kit's, so that no module of
// the caller's directory gets in between.
func (k *kit) script(ctx context.Context, name string) (*lockstep.Workload, error) {
	path, err := exec.LookPath(k.options.python)
	if err != nil {
		return nil, errNotHere("there is no " + k.options.python)
	}
	return lockstep.Start(ctx, k.temp, []string{"PYTHONDONTWRITEBYTECODE=1", "HOME=" + k.temp}, path, filepath.Join(k.dir, name))
}

// byLine are a workload's own counts, by "function (file:line)".
func byLine(a lockstep.Answer, key string) (map[string]uint64, error) {
	counts := map[string]uint64{}
	err := json.Unmarshal([]byte(a.Text(key)), &counts)
	return counts, err
}

// python compares lines of Python with those that the workload counted for itself.
func (k *kit) python(ctx context.Context, s *report.Step) error {
	for _, c := range []struct{ gadget, source, field, command string }{
		{"cuda_alloc", "allocs", "inuse_bytes", "hold"}, {"cuda_kernel", "calls", "calls", "launch"},
	} {
		w, err := k.script(ctx, "workload.py")
		if err != nil {
			return err
		}
		defer w.Stop()
		if a, err := w.Must(commandLimit, "init"); err != nil {
			if a.Result == -2 {
				return errNotHere(a.Error)
			}
			return err
		}
		run, stop, err := k.trace(ctx, w.PID, c.gadget, driverLibrary)
		if err != nil {
			return err
		}
		defer stop()
		a, err := w.Must(commandLimit, "%s", c.command)
		if err != nil {
			return err
		}
		stop()
		truth, err := byLine(a, "lines")
		if err != nil {
			return err
		}
		measured := map[string]uint64{}
		for _, r := range run.Table(c.source) {
			if c.gadget == "cuda_alloc" || r.Text("operation") == "launch" {
				measured[r.Text("frame")] += r.Number(c.field)
			}
		}
		s.Equal(c.gadget+": "+c.field+" by line", listed(truth), listed(measured))
	}
	return nil
}

// poolLibrary is where PyTorch counts its pool.
const poolLibrary = "libc10.so"

// has reports whether the interpreter has a module, and its version.
func (k *kit) has(ctx context.Context, module string) (version string, ok bool) {
	out, err := exec.CommandContext(ctx, k.options.python, "-c",
		"import importlib.metadata as m; print(m.version('"+module+"'))").Output()
	return strings.TrimSpace(string(out)), err == nil
}

// pytorch compares cuda_alloc's tensors with PyTorch's count of a short training.
func (k *kit) pytorch(ctx context.Context, s *report.Step) error {
	version, ok := k.has(ctx, "torch")
	if !ok {
		return errNotHere("PyTorch is not installed for " + k.options.python)
	}
	s.Record("version", version, false)
	w, err := k.script(ctx, "torch_workload.py")
	if err != nil {
		return err
	}
	defer w.Stop()
	const limit = 90 * time.Second // its import takes long
	if _, err := w.Must(limit, "init"); err != nil {
		return err
	}
	run, stop, err := k.trace(ctx, w.PID, "cuda_alloc", poolLibrary)
	if err != nil {
		return err
	}
	defer stop()
	a, err := w.Must(limit, "train")
	if err != nil {
		return err
	}
	stop()
	s.Equal("tensors in use, bytes, and PyTorch's memory_allocated()", a.Number("allocated"), tensors(run.Table("allocs")))
	return k.countStep(ctx, w, s)
}

// countStep counts the driver's launches of a training step with cuda_kernel.
func (k *kit) countStep(ctx context.Context, w *lockstep.Workload, s *report.Step) error {
	run, stop, err := k.trace(ctx, w.PID, "cuda_kernel", driverLibrary)
	if err != nil {
		return err
	}
	defer stop()
	a, err := w.Must(commandLimit, "step")
	if err != nil {
		return err
	}
	stop()
	launches := uint64(0)
	for _, r := range run.Table("calls") {
		if r.Text("operation") == "launch" {
			launches += r.Number("calls")
		}
	}
	if a.Number("launches") == 0 {
		s.Impossible("launches of a step, and PyTorch's profiler", "the profiler saw none")
		return nil
	}
	s.Equal("launches of a step, and PyTorch's profiler", a.Number("launches"), launches)
	return nil
}

func tensors(rows []gadget.Row) (bytes uint64) {
	for _, r := range rows {
		if r.Text("kind") == "tensor" {
			bytes += r.Number("inuse_bytes")
		}
	}
	return bytes
}

// vllm starts a model with random weights, and compares as pytorch does.
func (k *kit) vllm(ctx context.Context, s *report.Step) error {
	version, ok := k.has(ctx, "vllm")
	if !ok {
		return errNotHere("vLLM is not installed for " + k.options.python)
	}
	s.Record("version", version, false)
	w, err := k.script(ctx, "vllm_workload.py")
	if err != nil {
		return err
	}
	defer w.Stop()
	if _, err := w.Must(90*time.Second, "init"); err != nil {
		return err
	}
	run, stop, err := k.trace(ctx, w.PID, "cuda_alloc", poolLibrary)
	if err != nil {
		return err
	}
	defer stop()
	a, err := w.Must(100*time.Second, "serve")
	if err != nil {
		return err
	}
	stop()
	s.Equal("tensors in use, bytes, and PyTorch's memory_allocated()", a.Number("allocated"), tensors(run.Table("allocs")))
	return nil
}
