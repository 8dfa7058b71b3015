// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
)

// A tenant has a library with the build id and the size of another one's, which is read first. What is
// probed in the other one is where its own functions are.
func TestForgedBuildIDs(t *testing.T) {
	dir := t.TempDir()
	build := func(name, first, second string) *procmaps.File {
		t.Helper()
		source, path := filepath.Join(dir, name+".c"), filepath.Join(dir, name+".so")
		require.NoError(t, os.WriteFile(source, []byte(`
__attribute__((section(".text.a"))) int `+first+`(int n) { return n + 1; }
__attribute__((section(".text.b"))) int `+second+`(int n) { return n * 37 - 5; }
`), 0o644))
		run(t, "gcc", "-O1", "-shared", "-fPIC", "-Wl,--build-id=0xfedcba9876543210", "-o", path, source)
		f, err := procmaps.NewFile(os.Open(path))
		require.NoError(t, err)
		t.Cleanup(func() { f.Close() })
		return f
	}
	forged, real := build("forged", "gpuFree", "gpuAlloc"), build("real", "gpuAlloc", "gpuFree")
	tr := &Tracer{cfg: Config{Points: []Point{{Library: "libtracertest", Symbol: "gpuAlloc"}}}, state: newState()}
	before, after := tr.resolve(forged, "libtracertest", 1), tr.resolve(real, "libtracertest", 2)
	require.NoError(t, before.err)
	require.NoError(t, after.err)
	require.Equal(t, forged.Size(), real.Size())
	require.Equal(t, "fedcba9876543210", before.buildID)
	require.Equal(t, before.buildID, after.buildID)
	require.Len(t, after.probes, 1)
	require.NotEqual(t, before.probes[0].entry, after.probes[0].entry)
	fresh := (&Tracer{cfg: tr.cfg, state: newState()}).resolve(real, "libtracertest", 2)
	require.Equal(t, fresh, after)
}

// A tenant with many libraries leaves room to others.
func TestFilesAreBounded(t *testing.T) {
	const hostile, honest = 1, 2
	tr := &Tracer{state: newState()}
	for tr.hasRoom(hostile) {
		f := newFile()
		f.tenant = hostile
		tr.files[fileKey{ino: uint64(len(tr.files))}] = f
	}
	require.Len(t, tr.files, maxFiles-maxFiles/4)
	for tr.hasRoom(honest) {
		f := newFile()
		f.tenant = honest
		tr.files[fileKey{ino: uint64(len(tr.files))}] = f
	}
	require.Len(t, tr.files, maxFiles)
}

// The wait for a collective of NCCL is in the driver, which libraries that are mapped later have below them.
func TestNCCLIsAttachedToLast(t *testing.T) {
	tr := &Tracer{libraries: []string{"libnccl", "libcuda"}}
	s := &procmaps.Snapshot{}
	for n, path := range []string{"/usr/lib/libc.so.6", "/usr/lib/libnccl.so.2", "/opt/libnccl.so.2", "/usr/lib/libcuda.so.1", "/usr/lib/libcuda.so.1"} {
		s.Mappings = append(s.Mappings, procmaps.Mapping{Path: path, Perms: procmaps.Exec, Start: uint64(n) << 20, Inode: uint64(n)})
	}
	var paths []string
	for _, m := range tr.libraryMappings(s) {
		paths = append(paths, m.Path)
	}
	require.Equal(t, []string{"/usr/lib/libcuda.so.1", "/usr/lib/libnccl.so.2", "/opt/libnccl.so.2"}, paths)
}
