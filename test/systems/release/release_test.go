// SPDX-License-Identifier: Apache-2.0

// Package release builds the files to publish, like make release, and installs them on
// bare systems. RELEASE=1 (make test-release); it needs root and the roots of
// test/support/fixtures/roots.sh.
package release

import (
	"crypto/sha256"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/bpftest"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/simulated"
)

const version = "v0.0.1-test"

func command(t *testing.T, dir, program string, args ...string) string {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s %v: %s", program, args, out)
	return string(out)
}

// sums of all files of a folder, by name.
func sums(t *testing.T, dir string) map[string][sha256.Size]byte {
	t.Helper()
	all := map[string][sha256.Size]byte{}
	require.NoError(t, fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(filepath.Join(dir, name))
		all[name] = sha256.Sum256(content)
		return err
	}))
	return all
}

// TestRelease: a clone at another path gives the same bytes; and a bare Debian and a bare
// Ubuntu run the programs installed from the directory.
func TestRelease(t *testing.T) {
	if os.Getenv("RELEASE") == "" {
		t.Skip("RELEASE=1 builds a release twice, which takes 20 minutes: make test-release")
	}
	bpftest.RequireRoot(t)
	key := filepath.Join(t.TempDir(), "key.pem")
	command(t, ".", "openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", key)
	host := bases(t)
	build := func(tree string) string {
		command(t, tree, "make", "release", "VERSION="+version, "KEY="+key, "DAEMON_BASE="+host+"/ig:v1", "PROGRAM_BASE="+host+"/debian:v1")
		out := filepath.Join(t.TempDir(), "release")
		require.NoError(t, os.Rename(filepath.Join(tree, "build/release"), out))
		return out
	}
	clones := [2]string{filepath.Join(t.TempDir(), "clone"), filepath.Join(t.TempDir(), "a/path/that/is/longer")}
	var built [2]string
	for _, clone := range clones { // of one commit, whatever is committed meanwhile
		command(t, ".", "git", "-c", "safe.directory=*", "clone", "-q", simulated.Root(), clone)
	}
	for i, clone := range clones {
		built[i] = build(clone)
	}
	first, second := sums(t, built[0]), sums(t, built[1])
	require.Len(t, first, len(second))
	for name, sum := range first {
		require.Equal(t, sum, second[name], "%s differs between two builds", name)
	}
	t.Logf("%d files are the same in two builds", len(first))

	imageRuns(t, filepath.Join(built[0], "images/ig-gpu.tar"))
	require.FileExists(t, filepath.Join(built[0], "images/ig-gpu-daemon.tar"))
	chart := command(t, ".", "tar", "-xOf", filepath.Join(built[0], "gpu-gadgets-0.0.1-test.tgz"), "gpu-gadgets/Chart.yaml", "gpu-gadgets/values-daemon.yaml")
	require.Contains(t, chart, "appVersion: "+version+"\n")
	require.Contains(t, chart, "ig-gpu-daemon, tag: "+version+"}\n")

	for _, system := range []string{"debian", "ubuntu"} {
		t.Run(system, func(t *testing.T) {
			root := filepath.Join(simulated.Root(), "build/fixtures/roots", system)
			require.FileExists(t, filepath.Join(root, ".complete"), "run test/support/fixtures/roots.sh")
			installedOn(t, root, built[0])
		})
	}
}

// installedOn installs the release in a root directory that stays as it is, and runs it.
func installedOn(t *testing.T, root, release string) {
	t.Helper()
	// Mounts and written files end with the shell.
	const script = `set -e
		mount -t tmpfs tmpfs "$1"; mkdir "$1/up" "$1/work" "$1/root"
		mount -t overlay overlay -o "lowerdir=$2,upperdir=$1/up,workdir=$1/work" "$1/root"
		cd "$1/root"; mkdir release
		mount --bind "$3" release; mount -t proc proc proc; mount --rbind /sys sys; mount --rbind /dev dev
		shift 3
		exec /usr/sbin/chroot . /bin/sh -c "$1"`
	in := func(text string) string {
		t.Helper()
		return command(t, ".", "unshare", "-m", "bash", "-c", script, "bash", t.TempDir(), root, release, text)
	}
	out := in("sh /release/install.sh && ig-gpu --version && ig-gpu check --help && ls /usr/local/share/man/man1 && gpu-exporter --help 2>&1 | head -3")
	require.Contains(t, out, "Installed ig-gpu "+version+" in /usr/local\n")
	require.Contains(t, out, "\nig-gpu "+version+"\n")
	require.Contains(t, out, "ig-gpu-check.1")

	began := time.Now()
	out = in("sh /release/install.sh >/dev/null && ! command -v python3 && ig-gpu demo")
	require.Regexp(t, regexp.MustCompile(`(?s)Memory\n.*Look first at\n`), out)
	require.Less(t, time.Since(began), 30*time.Second, "the demo takes about 12 s")
	i := strings.Index(out, "Look first at")
	t.Log(out[i:min(len(out), i+200)])
}
