// SPDX-License-Identifier: Apache-2.0

// Command pack makes the data files in the kit's directory: ig-gpu, compressed, and the
// functions that each gadget probes. make gpu-kit runs it from the root of the
// repository.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"

	"github.com/klauspost/compress/zstd"

	"github.com/gpu-gadgets/gpu-gadgets/internal/ig/places"
	"github.com/gpu-gadgets/gpu-gadgets/internal/tracer"
)

// maxBytes is the maximum size of the kit.
const maxBytes = 60 << 20

func main() {
	program := flag.String("ig-gpu", "build/gpu-kit-ig-gpu", "the static ig-gpu")
	out := flag.String("out", "build/gpu-kit", "the kit's directory")
	flag.Parse()
	if err := pack(*program, *out); err != nil {
		fmt.Fprintln(os.Stderr, "pack:", err)
		os.Exit(1)
	}
}

func pack(program, out string) error {
	if err := compress(program, filepath.Join(out, "ig-gpu.zst")); err != nil {
		return fmt.Errorf("compress ig-gpu: %w", err)
	}
	points := map[string][]tracer.Point{}
	for _, gadget := range []string{"cuda_alloc", "cuda_kernel", "nccl_trace"} {
		all, err := places.Read(fmt.Sprintf("build/bpf/%s/%s.bpf.o", gadget, runtime.GOARCH))
		if err != nil {
			return err
		}
		points[gadget] = places.Always(all)
	}
	text, err := json.MarshalIndent(points, "", " ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(out, "places.json"), text, 0o644); err != nil {
		return err
	}
	for _, name := range []string{"run.sh", "README.md", "workload.py", "torch_workload.py", "vllm_workload.py"} {
		b, err := os.ReadFile(filepath.Join("cmd/gpu-kit/files", name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(out, name), b, 0o755); err != nil {
			return err
		}
	}
	return size(out)
}

// size prints the kit's size, which has a limit.
func size(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	sum := int64(0)
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return err
		}
		sum += info.Size()
	}
	fmt.Printf("    %s: %.1f MiB\n", dir, float64(sum)/(1<<20))
	if sum > maxBytes {
		return fmt.Errorf("%s has %d bytes, more than %d", dir, sum, maxBytes)
	}
	return nil
}

// compress writes a file compressed, unless it is there and newer.
func compress(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	before, err := in.Stat()
	if err != nil {
		return err
	}
	if after, err := os.Stat(to); err == nil && after.ModTime().After(before.ModTime()) {
		return nil
	}
	out, err := os.Create(to + ".new")
	if err != nil {
		return err
	}
	defer os.Remove(to + ".new") // already removed on success
	z, err := zstd.NewWriter(out, zstd.WithEncoderLevel(zstd.SpeedBetterCompression), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return errors.Join(err, out.Close())
	}
	_, err = io.Copy(z, in)
	if err := errors.Join(err, z.Close(), out.Close()); err != nil {
		return err
	}
	return os.Rename(to+".new", to)
}
