// SPDX-License-Identifier: Apache-2.0

// Package bpftest compiles the eBPF programs of a test and loads them into the
// running kernel. It is for tests only: a missing compiler or header fails the
// test with the package to install; missing privilege skips it, and the skip
// names what it checked.
package bpftest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"

	"github.com/gpu-gadgets/gpu-gadgets/internal/elf/compiled"
	"github.com/gpu-gadgets/gpu-gadgets/internal/ig/mapiter"
)

// Compiler is the C compiler: the version that builds the gadgets.
const Compiler = "clang-19"

const igModule = "github.com/inspektor-gadget/inspektor-gadget"

// arches are libbpf's names of the machines, by GOARCH.
var arches = map[string]string{"amd64": "x86", "arm64": "arm64"}

// PrebuiltVariable names a directory with the objects that a test would compile. It is
// set on a machine without a compiler: an emulated one of another architecture.
const PrebuiltVariable = "GPU_GADGETS_PREBUILT"

// Prebuilt returns a file of that directory. False: the test compiles it.
func Prebuilt(t testing.TB, name string) (path string, ok bool) {
	t.Helper()
	dir := os.Getenv(PrebuiltVariable)
	if dir == "" {
		return "", false
	}
	path = filepath.Join(dir, name)
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%s is set: %v", PrebuiltVariable, err)
	}
	return path, true
}

// includes finds the directories once per test binary, because go list takes a second. To
// the last one the architecture's name must be appended.
var includes = sync.OnceValues(func() ([]string, error) {
	root, err := moduleDir("")
	if err != nil {
		return nil, err
	}
	ig, err := moduleDir(igModule)
	if err != nil {
		return nil, err
	}
	return []string{
		filepath.Join(root, "bpf"),
		filepath.Join(ig, "include"),
		filepath.Join(ig, "include", "gadget"),
	}, nil
})

// moduleDir returns the directory of a module of the build list; of the main
// module when path is empty.
func moduleDir(path string) (string, error) {
	args := []string{"list", "-m", "-f", "{{.Dir}}"}
	if path != "" {
		args = append(args, path)
	}
	out, err := exec.Command("go", args...).Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		return "", fmt.Errorf("find module %q: %w", path, err)
	}
	dir := strings.TrimSpace(string(out))
	if dir == "" {
		return "", fmt.Errorf("find module %q: not downloaded (go mod download)", path)
	}
	return dir, nil
}

// Compile builds the eBPF object of a .bpf.c file, given relative to the test's
// directory, with further compiler flags, and returns the object's path. Tests share the
// object, also those of other packages, and only read it: see objects.go. If make build
// compiled the same source, its object is used, which has no DWARF.
func Compile(t testing.TB, source string, flags ...string) string {
	t.Helper()
	if object, ok := Prebuilt(t, objectName(source)); ok {
		return object
	}
	return CompileFor(t, runtime.GOARCH, source, flags...)
}

// objectName is the file name of the object of a .bpf.c file.
func objectName(source string) string {
	return strings.TrimSuffix(filepath.Base(source), ".bpf.c") + ".o"
}

// CompileFor is Compile for another processor, by Go's name of it.
func CompileFor(t testing.TB, goarch, source string, flags ...string) string {
	t.Helper()
	arch, ok := arches[goarch]
	if !ok {
		t.Fatalf("compile %s: no eBPF target name for %s", source, goarch)
	}
	if _, err := exec.LookPath(Compiler); err != nil {
		t.Fatalf("compile %s: %v: install %s", source, err, Compiler)
	}
	dirs, err := includes()
	if err != nil {
		t.Fatalf("compile %s: %v", source, err)
	}
	for _, dir := range []string{dirs[0], filepath.Dir(source)} {
		if err := readAll(dir); err != nil {
			t.Fatalf("compile %s: %v", source, err)
		}
	}
	from := compiled.Source{
		Compiler: Compiler,
		Path:     source,
		Include:  append(slices.Clone(dirs), filepath.Join(dirs[len(dirs)-1], goarch)),
		Flags:    append([]string{"-D__TARGET_ARCH_" + arch}, flags...),
	}
	object, err := built(from, filepath.Dir(dirs[0]), goarch)
	if err == nil && object == "" {
		args := []string{"-target", "bpf", "-g", "-O2", "-Wall", "-Werror"}
		for _, dir := range from.Include {
			args = append(args, "-I", dir)
		}
		object, err = cached(source, append(args, from.Flags...))
	}
	if err != nil {
		hint := ""
		if strings.Contains(err.Error(), "bpf/bpf_helpers.h' file not found") {
			hint = "\ninstall libbpf-dev"
		}
		t.Fatalf("compile %s: %v%s", source, err, hint)
	}
	return object
}

// readAll reads the files of a directory and below, so that go test knows that the result
// depends on them: it tracks files that the test opens, not those of the compiler, and
// would otherwise use a cached result after a header has changed.
func readAll(dir string) error {
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		_, err = os.ReadFile(path)
		return err
	})
}

// specs has what Spec parsed, by source and flags.
var specs sync.Map

// Spec compiles a .bpf.c file and parses the object, once per test binary: to find the object
// again, the source would be preprocessed. The specification is the caller's own.
func Spec(t testing.TB, source string, flags ...string) *ebpf.CollectionSpec {
	t.Helper()
	key := fmt.Sprintf("%q", append([]string{source}, flags...))
	if spec, ok := specs.Load(key); ok {
		return spec.(*ebpf.CollectionSpec).Copy()
	}
	spec, err := ebpf.LoadCollectionSpec(Compile(t, source, flags...))
	if err != nil {
		t.Fatalf("parse %s: %v", source, err)
	}
	specs.Store(key, spec)
	return spec.Copy()
}

// LoadSpec loads a collection; it is unloaded when the test ends.
func LoadSpec(t testing.TB, spec *ebpf.CollectionSpec) *ebpf.Collection {
	t.Helper()
	if err := rlimit.RemoveMemlock(); err != nil {
		t.Fatalf("raise the memlock limit: %v", err)
	}
	var programs mapiter.Programs
	if mapiter.Refused() {
		programs = mapiter.Take(spec)
	}
	coll, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{
		// Room for the verifier's whole reasoning, should it refuse.
		Programs: ebpf.ProgramOptions{LogSizeStart: 1 << 26},
	})
	if err != nil {
		var refused *ebpf.VerifierError
		if errors.As(err, &refused) {
			t.Fatalf("load: %+v", refused)
		}
		t.Fatalf("load: %v", err)
	}
	t.Cleanup(coll.Close)
	if programs != nil {
		taken.Store(coll, programs)
		t.Cleanup(func() { taken.Delete(coll) })
	}
	return coll
}

// RequireRoot skips the test when it does not run as root. With
// GPU_GADGETS_TEST_ROOT=1, as in CI, it fails instead.
func RequireRoot(t testing.TB) {
	t.Helper()
	if uid := os.Geteuid(); uid != 0 {
		if os.Getenv("GPU_GADGETS_TEST_ROOT") == "1" {
			t.Fatalf("GPU_GADGETS_TEST_ROOT=1, but the tests run as user %d", uid)
		}
		t.Skipf("needs root to load eBPF; runs as user %d", uid)
	}
}
