// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/oci"
	"github.com/stretchr/testify/require"
	orasoci "oras.land/oras-go/v2/content/oci"
)

// build makes the test gadget's image and returns its tar and layout.
func build(t *testing.T) (tar, layout string) {
	t.Helper()
	dir := t.TempDir()
	layouts := filepath.Join(dir, "layouts")
	require.NoError(t, os.MkdirAll(filepath.Join(layouts, "removed_gadget"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(layouts, "README.md"), nil, 0o644))
	require.NoError(t, run(options{
		list:    filepath.Join("testdata", "build.yaml"),
		out:     filepath.Join(dir, "images"),
		objects: filepath.Join(dir, "bpf"),
		layouts: layouts,

		architectures: "all",
	}))
	require.NoDirExists(t, filepath.Join(layouts, "removed_gadget"))
	require.FileExists(t, filepath.Join(layouts, "README.md"))
	return filepath.Join(dir, "images", "execs.tar"), filepath.Join(layouts, "execs")
}

func TestSameSourceGivesSameBytes(t *testing.T) {
	first, _ := build(t)
	second, _ := build(t)
	a, err := os.ReadFile(first)
	require.NoError(t, err)
	b, err := os.ReadFile(second)
	require.NoError(t, err)
	require.Equal(t, a, b)
}

func TestImageIsWhatInspektorGadgetReads(t *testing.T) {
	tar, layout := build(t)
	fromTar, err := orasoci.NewFromTar(t.Context(), tar)
	require.NoError(t, err)
	fromDir, err := orasoci.NewFromFS(t.Context(), os.DirFS(layout))
	require.NoError(t, err)
	for _, store := range []*orasoci.ReadOnlyStore{fromTar, fromDir} {
		manifest, err := oci.GetManifestForHost(t.Context(), store, "ghcr.io/gpu-gadgets/execs:latest")
		require.NoError(t, err)
		require.Equal(t, configMediaType, manifest.Config.MediaType)
		require.Equal(t, "execs", manifest.Annotations["org.opencontainers.image.title"])
		require.Len(t, manifest.Layers, 1)
		require.Equal(t, programMediaType, manifest.Layers[0].MediaType)
	}
}

func TestObjectsExistForEveryArchitectureWithoutPaths(t *testing.T) {
	tar, _ := build(t)
	working, err := os.Getwd()
	require.NoError(t, err)
	for _, arch := range namesOf(architectures()) {
		object, err := os.ReadFile(filepath.Join(filepath.Dir(tar), "..", "bpf", "execs", arch+".bpf.o"))
		require.NoError(t, err)
		require.NotContains(t, string(object), working)
	}
}

func TestMistakesInTheListAreNamed(t *testing.T) {
	for name, c := range map[string]struct{ list, want string }{
		"unknown key":  {"gadgets: [{name: a, cflag: [-O3]}]", "cflag"},
		"no gadgets":   {"gadgets: []", "no gadgets"},
		"listed twice": {"gadgets: [{name: a}, {name: a}]", "listed twice"},
		"path as name": {"gadgets: [{name: ../a}]", "lower_case_words"},
		"empty name":   {"gadgets: [{dir: a}]", "lower_case_words"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "build.yaml")
			require.NoError(t, os.WriteFile(path, []byte(c.list), 0o644))
			_, err := readList(path)
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestProgramThatFailsOnOneArchitectureFailsTheBuild(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "gadgets", "amd64_only")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	for file, content := range map[string]string{
		filepath.Join(root, "build.yaml"):   "gadgets: [{name: amd64_only}]",
		filepath.Join(dir, "gadget.yaml"):   "name: amd64_only",
		filepath.Join(dir, "program.bpf.c"): "#ifndef __TARGET_ARCH_x86\n#error only for amd64\n#endif\n",
	} {
		require.NoError(t, os.WriteFile(file, []byte(content), 0o644))
	}
	for choice, want := range map[string]string{
		"all":  "compile for arm64",
		native: map[string]string{"amd64": "check for arm64", "arm64": "compile for arm64"}[runtime.GOARCH],
	} {
		err := run(options{
			list:    filepath.Join(root, "build.yaml"),
			out:     filepath.Join(root, "images"),
			objects: filepath.Join(root, "bpf"),

			architectures: choice,
		})
		require.ErrorContains(t, err, want)
		require.NoFileExists(t, filepath.Join(root, "images", "amd64_only.tar"))
	}
}

func TestNativeImagesHaveNoOtherProgram(t *testing.T) {
	dir := t.TempDir()
	objects := filepath.Join(dir, "bpf", "execs")
	require.NoError(t, os.MkdirAll(objects, 0o755))
	for _, arch := range architectures() {
		require.NoError(t, os.WriteFile(filepath.Join(objects, arch.name+".bpf.o"), []byte("old"), 0o644))
	}
	require.NoError(t, run(options{
		list:    filepath.Join("testdata", "build.yaml"),
		out:     filepath.Join(dir, "images"),
		objects: filepath.Join(dir, "bpf"),

		architectures: native,
	}))
	left, err := filepath.Glob(filepath.Join(objects, "*.o"))
	require.NoError(t, err)
	require.Equal(t, []string{filepath.Join(objects, runtime.GOARCH+".bpf.o")}, left)
	store, err := orasoci.NewFromTar(t.Context(), filepath.Join(dir, "images", "execs.tar"))
	require.NoError(t, err)
	_, err = oci.GetManifestForHost(t.Context(), store, "ghcr.io/gpu-gadgets/execs:latest")
	require.NoError(t, err)
}

func TestParameterWithoutVariableIsRefused(t *testing.T) {
	objects := filepath.Join(t.TempDir(), "bpf")
	list, err := readList(filepath.Join("testdata", "build.yaml"))
	require.NoError(t, err)
	compiler, err := newCompiler(options{objects: objects, architectures: native})
	require.NoError(t, err)
	paths, err := compiler.compile(list.Gadgets[0])
	require.NoError(t, err)

	other := list.Gadgets[0]
	other.root, other.Dir = t.TempDir(), ""
	require.NoError(t, os.WriteFile(other.metadata(),
		[]byte("name: execs\nparams: {ebpf: {no_such_variable: {key: x}}}"), 0o644))
	_, err = pack(other, compiler.packed, paths, "", stamp{builder: "v0.55.0"})
	require.ErrorContains(t, err, "no_such_variable")
}
