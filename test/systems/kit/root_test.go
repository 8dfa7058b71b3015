// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// python is Debian's, whose files are few and in known places.
const python = "/usr/bin/python3.11"

// bareRoot makes a root directory with busybox, the C library, the kit, the simulated
// libraries and Python with its standard library; no Go, no packages of Python, no tools.
func bareRoot(t *testing.T, kit string, libraries ...string) (root string) {
	t.Helper()
	root = t.TempDir()
	for _, dir := range []string{"proc", "sys", "dev", "tmp", "kit", "simulated", "bin", "usr/bin", "usr/lib/python3.11"} {
		require.NoError(t, os.MkdirAll(filepath.Join(root, dir), 0o755))
	}
	require.FileExists(t, "/bin/busybox", "apt-get install busybox-static")
	install(t, root, "/bin/busybox")
	for _, name := range []string{"sh", "id", "dirname", "false"} {
		require.NoError(t, os.Symlink("busybox", filepath.Join(root, "bin", name)))
	}
	install(t, root, python)
	modules, err := filepath.Glob("/usr/lib/python3.11/lib-dynload/_ctypes.*.so")
	require.NoError(t, err)
	require.Len(t, modules, 1, "apt-get install libpython3.11-stdlib")
	needed(t, root, modules[0])
	require.NoError(t, os.Symlink("python3.11", filepath.Join(root, "usr/bin/python3")))
	require.NoError(t, os.CopyFS(filepath.Join(root, "kit"), os.DirFS(kit)))
	needed(t, root, filepath.Join(kit, "workload"))
	for _, library := range libraries {
		copyFile(t, library, filepath.Join(root, "simulated", filepath.Base(library)))
		needed(t, root, library)
	}
	return root
}

// install copies a program to its own path in the root, with the libraries that it needs.
func install(t *testing.T, root, path string) {
	t.Helper()
	copyFile(t, path, filepath.Join(root, path))
	needed(t, root, path)
}

// needed copies the libraries that the dynamic linker would load for a file.
func needed(t *testing.T, root, path string) {
	t.Helper()
	out, _ := exec.Command("ldd", path).CombinedOutput() // fails for static programs
	for _, word := range strings.Fields(string(out)) {
		if strings.HasPrefix(word, "/lib") || strings.HasPrefix(word, "/usr/lib") {
			copyFile(t, word, filepath.Join(root, word))
		}
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(filepath.Dir(to), 0o755))
	require.NoError(t, os.WriteFile(to, b, 0o755))
}

// enter returns the arguments of a shell that mounts the usual file systems, and runs
// run.sh with its own arguments in the root. The mounts end with the shell.
func enter(root string, args ...string) []string {
	const script = `set -e
		mount --bind "$0" "$0"
		mount -t proc proc "$0/proc"
		mount --rbind /sys "$0/sys"
		mount --rbind /dev "$0/dev"
		mount --bind /usr/lib/python3.11 "$0/usr/lib/python3.11"
		mount -o remount,bind,ro "$0/usr/lib/python3.11"
		exec /usr/sbin/chroot "$0" /kit/run.sh "$@"`
	return append([]string{"unshare", "-m", "bash", "-c", script, root}, args...)
}
