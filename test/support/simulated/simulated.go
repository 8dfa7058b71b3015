// SPDX-License-Identifier: Apache-2.0

// Package simulated builds the libraries that simulate a GPU's: examples/simcuda, simcudart,
// simnccl and simtorch, from the current sources. Tests of all packages share build/.
package simulated

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// Root is the repository's directory.
func Root() string {
	_, here, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(here), "../../..")
}

// built holds for each example a function that makes it, once per test binary.
var built sync.Map

// Build makes an example, and gives the directory of its libraries.
func Build(t testing.TB, example string) (dir string) {
	t.Helper()
	once, _ := built.LoadOrStore(example, sync.OnceValue(func() error { return build(example) }))
	require.NoError(t, once.(func() error)())
	return filepath.Join(Root(), "build", example)
}

// build makes an example while no other test binary does.
func build(example string) error {
	source := filepath.Join(Root(), "examples", example)
	lock, err := os.Open(source)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", source, err)
	}
	out, err := exec.Command("make", "-s", "-C", source).CombinedOutput()
	if err != nil {
		return fmt.Errorf("make -C examples/%s: %w\n%s", example, err, out)
	}
	return nil
}

// Driver is the path of the simulated CUDA driver.
func Driver(t testing.TB) string {
	t.Helper()
	return filepath.Join(Build(t, "simcuda"), "libcuda.so.1")
}

// NCCL is the path of the simulated NCCL.
func NCCL(t testing.TB) string {
	t.Helper()
	return filepath.Join(Build(t, "simnccl"), "libnccl.so.2")
}

// Copy builds a library of an example and puts a copy into a directory, which it creates:
// probes are set on the file, for all processes that map it, and no process has mapped
// the copy yet.
func Copy(t testing.TB, dir, example, name string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(Build(t, example), name))
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(dir, 0o755))
	path := filepath.Join(dir, filepath.Base(name))
	require.NoError(t, os.WriteFile(path, content, 0o755))
	return path
}

// DriverCopy is a driver of this test alone.
func DriverCopy(t testing.TB) string {
	t.Helper()
	return Copy(t, t.TempDir(), "simcuda", "libcuda.so.1")
}

// PyTorchRoot is where test/support/fixtures/torch.sh unpacks the real PyTorch.
func PyTorchRoot() string {
	return filepath.Join(Root(), "build/fixtures/torch/root")
}

// PyTorch is a command that runs Python with these arguments and the real PyTorch, on the
// simulated libraries, which it builds. Its process becomes that Python, so that signals
// and the pid are the program's. A directory in the LD_LIBRARY_PATH that the caller adds to
// the command's environment comes first: for a driver of its own. The test is skipped if
// PyTorch has not been fetched.
func PyTorch(t testing.TB, args ...string) *exec.Cmd {
	t.Helper()
	if _, err := os.Stat(filepath.Join(PyTorchRoot(), "usr/lib/python3/dist-packages/torch")); err != nil {
		t.Skipf("no PyTorch, test/support/fixtures/torch.sh fetches it: %v", err)
	}
	for _, example := range []string{"simcuda", "simnccl", "simcudart"} {
		Build(t, example)
	}
	return exec.Command(filepath.Join(Root(), "scripts/pytorch.sh"), args...)
}
