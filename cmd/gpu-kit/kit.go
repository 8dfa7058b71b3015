// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"github.com/gpu-gadgets/gpu-gadgets/cmd/gpu-kit/internal/gadget"
	"github.com/gpu-gadgets/gpu-gadgets/cmd/gpu-kit/internal/lockstep"
	"github.com/gpu-gadgets/gpu-gadgets/cmd/gpu-kit/internal/report"
	"github.com/gpu-gadgets/gpu-gadgets/internal/format/file"
	"github.com/gpu-gadgets/gpu-gadgets/internal/tracer"
)

const (
	// commandLimit is for one command of a workload, also a first one that starts a GPU.
	commandLimit = 30 * time.Second
	// attachLimit is the time that ig-gpu has to attach on a slow machine; it takes a second.
	attachLimit = 40 * time.Second
	mib         = 1 << 20
	// driverLibrary is mapped in every CUDA program.
	driverLibrary = "libcuda.so"
	simulated     = "simulated driver"
)

// kit is the state that steps share.
type kit struct {
	options
	dir, temp string
	program   string                    // ig-gpu
	points    map[string][]tracer.Point // functions that it probes, by gadget
	// isSimulated and devices are results of the first workload.
	isSimulated bool
	devices     int
	hasDriver   bool
	settings    string          // of the GPUs, before the first step
	objects     map[string]bool // eBPF objects of ig-gpu
	report      report.Report
}

// errNotHere is why a step is not possible on this machine: it is no failure.
type errNotHere string

func (e errNotHere) Error() string { return string(e) }

// step is a part of the report. Its lines stay when it fails.
type step struct {
	name  string
	about string
	limit time.Duration
	run   func(*kit, context.Context, *report.Step) error
}

// run runs all steps and writes the report after each, so that results are kept however
// the rest ends.
func run(ctx context.Context, o options) error {
	began := time.Now()
	k, err := newKit(o)
	if err != nil {
		return err
	}
	defer k.remove()
	all := slices.DeleteFunc(steps(), func(s step) bool { return !o.chosen(s.name) })
	for i, s := range all {
		fmt.Printf("[%2d/%d] %-12s %s\n", i+1, len(all), s.name, s.about)
		from := time.Now()
		lines := k.do(ctx, s)
		k.report.Lines = append(k.report.Lines, lines...)
		k.report.Seconds = time.Since(began).Seconds()
		if err := k.write(); err != nil {
			return err
		}
		part := report.Report{Lines: lines}
		fmt.Printf("        %d same, %d different, %d not possible, %d recorded, %.1f s\n", part.Count(report.Same),
			part.Count(report.Different), part.Count(report.NotPossible), part.Count(report.Recorded), time.Since(from).Seconds())
		for _, l := range lines {
			if l.Verdict == report.Different {
				fmt.Printf("        different: %s: expected %s, measured %s\n", l.Name, l.Expected, l.Measured)
			}
		}
	}
	fmt.Printf("%s: %.0f s\n", filepath.Join(o.out, "report.md"), time.Since(began).Seconds())
	return nil
}

// do runs one step within its time. Each failure is a line of the report.
func (k *kit) do(whole context.Context, s step) (lines []report.Line) {
	if s.name == "clean" { // even if the others were cancelled
		whole = context.WithoutCancel(whole)
	}
	ctx, cancel := context.WithTimeout(whole, s.limit)
	defer cancel()
	r := &report.Step{Name: s.name}
	defer func() {
		if p := recover(); p != nil {
			r.Equal("the step ends", "yes", fmt.Sprint("it panicked: ", p))
		}
		lines = r.Lines
	}()
	if ctx.Err() != nil {
		r.Impossible("all", ending(whole))
		return
	}
	if !k.hasDriver && s.name != "machine" && s.name != "clean" {
		r.Impossible("all", "there is no CUDA driver or no device")
		return
	}
	err := s.run(k, ctx, r)
	var notHere errNotHere
	switch {
	case errors.As(err, &notHere):
		r.Impossible("all", notHere.Error())
	case err != nil && whole.Err() != nil:
		r.Impossible("the rest", ending(whole))
	case err != nil && ctx.Err() != nil:
		r.Equal("the step ends", "yes", fmt.Sprintf("not within %v: %v", s.limit, err))
	case err != nil:
		r.Equal("the step ends", "yes", err)
	}
	return
}

// ending is the reason for which the run stops.
func ending(ctx context.Context) string {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return "the time is over"
	}
	return "the kit was interrupted"
}

// newKit unpacks the files of the kit.
func newKit(o options) (*kit, error) {
	k := &kit{options: o, objects: map[string]bool{}, report: report.Report{Machine: map[string]string{}}}
	var err error
	if k.dir, err = home(); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(k.dir, "places.json"))
	if err != nil {
		return nil, fmt.Errorf("read which functions are probed: %w", err)
	}
	if err := json.Unmarshal(text, &k.points); err != nil {
		return nil, fmt.Errorf("read which functions are probed: %w", err)
	}
	if k.temp, err = os.MkdirTemp("", "gpu-kit-"); err != nil {
		return nil, err
	}
	// In memory and in this mount namespace only, so that it is also removed by kill -9,
	// and programs can be executed even if /tmp is noexec.
	if err := unix.Mount("tmpfs", k.temp, "tmpfs", unix.MS_NOSUID, "size=1g,mode=700"); err != nil {
		os.Remove(k.temp)
		return nil, fmt.Errorf("make a temporary directory: %w", err)
	}
	if k.program = o.igGPU; k.program == "" {
		k.program = filepath.Join(k.temp, "ig-gpu")
		if err := unpack(filepath.Join(k.dir, "ig-gpu.zst"), k.program); err != nil {
			k.remove()
			return nil, fmt.Errorf("unpack ig-gpu into %s: %w", k.temp, err)
		}
	}
	var u unix.Utsname
	_ = unix.Uname(&u)
	k.report.Machine["kernel"] = "Linux " + unix.ByteSliceToString(u.Release[:]) + " " + runtime.GOARCH
	k.report.Machine["processors"] = fmt.Sprint(runtime.NumCPU())
	return k, nil
}

// remove removes the temporary directory.
func (k *kit) remove() {
	_ = unix.Unmount(k.temp, unix.MNT_DETACH)
	_ = os.Remove(k.temp)
}

// unpack writes a compressed program to a file that can be run.
func unpack(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	z, err := zstd.NewReader(in)
	if err != nil {
		return err
	}
	defer z.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, z)
	return errors.Join(err, out.Close())
}

func (k *kit) write() error {
	if err := os.MkdirAll(k.out, 0o755); err != nil {
		return err
	}
	for name, write := range map[string]func(io.Writer) error{
		"report.md": k.report.WriteMarkdown, "report.json": k.report.WriteJSON,
	} {
		f, err := file.Prepare(filepath.Join(k.out, name))
		if err == nil {
			err = f.Commit(write)
		}
		if err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	return nil
}

// workload starts the workload in C with the first device's context.
func (k *kit) workload(ctx context.Context) (*lockstep.Workload, error) {
	w, err := lockstep.Start(ctx, k.temp, nil, filepath.Join(k.dir, "workload"))
	if err != nil {
		return nil, err
	}
	for _, command := range []string{"init", "device 0"} {
		if _, err := w.Must(commandLimit, "%s", command); err != nil {
			w.Stop()
			return nil, err
		}
	}
	return w, nil
}

// trace runs a gadget on a process, attached to a library, until the function returned is
// called; the rows are then the last ones.
func (k *kit) trace(ctx context.Context, pid int, name, library string) (*gadget.Run, func(), error) {
	r, err := gadget.Start(ctx, attachLimit, k.program, []string{"HOME=" + k.temp}, name, pid, library)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", name, err)
	}
	isStopped := false
	return r, func() {
		if isStopped {
			return
		}
		isStopped = true
		maps.Copy(k.objects, r.Objects())
		r.Stop()
	}, nil
}

// libcuda is the file of the driver that a process has mapped.
func libcuda(pid int) (string, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return "", err
	}
	for _, line := range strings.Split(string(b), "\n") {
		if i := strings.IndexByte(line, '/'); i > 0 && strings.HasPrefix(filepath.Base(line[i:]), "libcuda.so") {
			return line[i:], nil
		}
	}
	return "", errors.New("the workload has mapped no libcuda.so")
}

// probed are the functions of libcuda that a gadget probes, by name.
func (k *kit) probed(gadgets ...string) []string {
	names := map[string]bool{}
	for _, g := range gadgets {
		for _, p := range k.points[g] {
			if p.Library == "libcuda" {
				names[p.Symbol] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// listed is a map as text: "a 1, b 2", by name; "none" where it is empty.
func listed[V any](values map[string]V) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(values)) {
		parts = append(parts, fmt.Sprintf("%s %v", name, values[name]))
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}
