// SPDX-License-Identifier: Apache-2.0

package pytorch

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/bpftest"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/simulated"
)

const (
	script = "../../../scripts/pytorch.sh"
	// version is the PyTorch that test/support/fixtures/torch.sh fetches.
	version = "2.6."
	fetch   = "run test/support/fixtures/torch.sh"
)

// unavailable is the reason of this machine; empty: PyTorch runs.
var unavailable = sync.OnceValue(func() string { return reason(script) })

// reason says in one line why PyTorch does not run, and how to get what is missing.
func reason(script string, env ...string) string {
	cmd := exec.Command(script, "-c", "import torch; print(torch.__version__)")
	cmd.Env = append(os.Environ(), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		text := strings.TrimSpace(stderr.String())
		last := text[strings.LastIndex(text, "\n")+1:] // of a traceback
		if last == "" {
			last = err.Error()
		}
		if !strings.Contains(last, ": run ") {
			last += ": " + fetch
		}
		return last
	}
	if got := strings.TrimSpace(string(out)); !strings.HasPrefix(got, version) {
		return fmt.Sprintf("PyTorch is %s, not %sx: %s", got, version, fetch)
	}
	return ""
}

// isRequired: in CI, and where make test-torch has fetched PyTorch, its absence is a failure.
func isRequired() bool { return os.Getenv("CI") == "true" || os.Getenv("PYTORCH_REQUIRED") != "" }

func requirePyTorch(t *testing.T) {
	t.Helper()
	bpftest.RequireRoot(t)
	for _, library := range []string{"simcuda", "simnccl", "simcudart"} {
		simulated.Build(t, library)
	}
	switch why := unavailable(); {
	case why != "" && isRequired():
		t.Fatal(why)
	case why != "":
		t.Skip(why)
	}
}

func TestWhatIsMissingIsOneLine(t *testing.T) {
	requirePyTorch(t)
	oneLine := func(pattern, got string) {
		t.Helper()
		require.Regexp(t, pattern+`.*run (test/support/fixtures/torch\.sh|make simcuda)$`, got)
		require.NotContains(t, got, "\n")
	}
	oneLine("PyTorch has not been fetched", reason(script, "PYTORCH_ROOT="+t.TempDir()))
	oneLine("libgloo_cuda.so.0 is missing", reason(script, "PYTORCH_ROOT="+without(t, "usr/lib/libgloo_cuda.so.0")))
	oneLine("libonnx.so.1", reason(script, "PYTORCH_ROOT="+without(t, "usr/lib/x86_64-linux-gnu/libonnx.so.1")))

	other := filepath.Join(t.TempDir(), "pytorch.sh")
	require.NoError(t, os.WriteFile(other, []byte("#!/bin/sh\necho 2.7.1+cu126\n"), 0o755))
	oneLine("PyTorch is 2.7.1.*, not 2.6", reason(other))
}

// without is the tree of PyTorch as links, without one file.
func without(t *testing.T, missing string) string {
	t.Helper()
	root, err := filepath.Abs("../../../build/fixtures/torch/root")
	require.NoError(t, err)
	tree := t.TempDir()
	for dir := missing; dir != "."; dir = filepath.Dir(dir) {
		parent := filepath.Dir(dir)
		require.NoError(t, os.MkdirAll(filepath.Join(tree, parent), 0o755))
		entries, err := os.ReadDir(filepath.Join(root, parent))
		require.NoError(t, err)
		for _, e := range entries {
			if path := filepath.Join(parent, e.Name()); path != dir {
				require.NoError(t, os.Symlink(filepath.Join(root, path), filepath.Join(tree, path)))
			}
		}
	}
	return tree
}

func TestPyTorchIsRequiredInCI(t *testing.T) {
	t.Setenv("PYTORCH_REQUIRED", "")
	t.Setenv("CI", "")
	require.False(t, isRequired())
	t.Setenv("CI", "true")
	require.True(t, isRequired())
	t.Setenv("CI", "")
	t.Setenv("PYTORCH_REQUIRED", "1")
	require.True(t, isRequired())
}
