// SPDX-License-Identifier: Apache-2.0

// Command gpu-kit verifies, on a machine with a GPU, facts that were measured on the
// simulated driver or read in documentation: it runs workloads under ig-gpu, compares the
// counts of both, and writes a report. Its directory has everything that it needs (make
// gpu-kit). It takes at most ten minutes and leaves nothing behind.
//
// It runs in its own mount namespace, so that its mounts end with it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/internal/format/duration"
)

// inside marks the process in the namespace.
const inside = "GPU_KIT_INSIDE"

type options struct {
	out, only, python, igGPU string
	limit                    time.Duration
}

func main() {
	var o options
	flag.StringVar(&o.out, "out", "gpu-kit-report", "directory for report.md and report.json")
	flag.StringVar(&o.only, "only", "", "comma-separated names of steps; default all")
	flag.StringVar(&o.python, "python", "python3", "interpreter for the workloads in Python; with PyTorch, if that is to be tried")
	flag.StringVar(&o.igGPU, "ig-gpu", "", "an ig-gpu instead of the kit's")
	o.limit = 570 * time.Second
	flag.Var((*duration.Value)(&o.limit), "limit", "when to end the last step; cleaning up may take half a minute more")
	flag.Parse()
	if err := start(o); err != nil {
		fmt.Fprintln(os.Stderr, "gpu-kit:", err)
		os.Exit(1)
	}
}

func start(o options) error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("needs root; runs as user %d", os.Geteuid())
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if os.Getenv(inside) == "" {
		return enter(ctx)
	}
	os.Unsetenv(inside)
	if err := syscall.Mount("none", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keep mounts private: %w", err)
	}
	// Already there: EBUSY. Without tracefs the step of ioctls reports it.
	_ = syscall.Mount("tracefs", "/sys/kernel/tracing", "tracefs", 0, "")
	ctx, cancel := context.WithTimeout(ctx, o.limit)
	defer cancel()
	return run(ctx, o)
}

// enter runs this program again in a mount namespace, and forwards signals to it.
func enter(ctx context.Context) error {
	// By its path: /proc/self/exe would lead to the file in the namespace that is left, and
	// its directory would not be found in the new one.
	path, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(path, os.Args[1:]...)
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("make a mount namespace: %w", err)
	}
	go func() {
		<-ctx.Done()
		_ = cmd.Process.Signal(syscall.SIGTERM)
	}()
	err = cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		os.Exit(exit.ExitCode()) // it has reported why
	}
	return err
}

// chosen reports whether a step was requested; the first and the last always run.
func (o options) chosen(name string) bool {
	return o.only == "" || name == "machine" || name == "clean" || strings.Contains(","+o.only+",", ","+name+",")
}

// home is the kit's directory.
func home() (string, error) {
	path, err := os.Executable()
	return filepath.Dir(path), err
}
