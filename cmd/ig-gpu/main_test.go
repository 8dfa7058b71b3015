// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/cmd/ig-gpu/internal/images"
)

// layoutsVariable makes this test binary behave as ig-gpu with the images of
// the directory that it names.
const layoutsVariable = "IG_GPU_TEST_LAYOUTS"

func TestMain(m *testing.M) {
	if dir := os.Getenv(layoutsVariable); dir != "" {
		limitMemory()
		os.Exit(run(os.Args[1:], images.New(os.DirFS(dir))))
	}
	os.Exit(m.Run())
}

// command is ig-gpu with one gadget inside, execs; it ends with the test.
func command(t *testing.T, layouts string, args ...string) (*exec.Cmd, *bytes.Buffer, *bytes.Buffer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append(os.Environ(), layoutsVariable+"="+layouts)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	return cmd, &stdout, &stderr
}

// buildLayouts makes the image of the test gadget as `make build` makes ours.
func buildLayouts(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	layouts := filepath.Join(dir, "layouts")
	require.NoError(t, os.Mkdir(layouts, 0o755))
	build := exec.Command("go", "run", "../gadget-images", "-f", "../gadget-images/testdata/build.yaml",
		"-o", filepath.Join(dir, "images"), "-objects", filepath.Join(dir, "bpf"), "-layouts", layouts)
	output, err := build.CombinedOutput()
	require.NoError(t, err, string(output))
	return layouts
}

func TestEmbeddedGadgetRunsAndStaysQuiet(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: loads eBPF programs")
	}
	cmd, stdout, stderr := command(t, buildLayouts(t), "run", "execs", "--host", "--timeout", "3", "-o", "json")
	require.NoError(t, cmd.Start())
	for range 25 { // until the run is over
		require.NoError(t, exec.Command("/bin/true").Run())
		time.Sleep(100 * time.Millisecond)
	}
	require.NoError(t, cmd.Wait(), stderr.String())

	var row struct {
		Proc struct{ Comm string }
	}
	first, _, _ := strings.Cut(stdout.String(), "\n")
	require.NoError(t, json.Unmarshal([]byte(first), &row), stdout.String())
	require.Contains(t, stdout.String(), `"comm":"true"`)
	for line := range strings.Lines(stderr.String()) {
		// A test binary knows no module versions, which Inspektor Gadget remarks.
		require.Contains(t, line, "built with ig", "a good run prints nothing else to stderr")
	}
}

func TestMistakesAreAnsweredInOneLine(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: the need for root would be the only answer")
	}
	layouts := buildLayouts(t)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"bogus"}, `unknown command "bogus"`},
		{[]string{"--bogus"}, "unknown flag: --bogus"},
		{[]string{"run", "execs", "--bogus"}, "unknown flag: --bogus"},
		{[]string{"run", "execs", "--timeout", "soon"}, `invalid argument "soon"`},
		{[]string{"run", "nosuch", "--pull", "never"}, `Error: unknown gadget "nosuch": not inside this binary (execs)`},
		{[]string{"run", "ghcr.io/gpu-gadgets/nosuch:v1", "--pull", "never"}, "not found"},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			cmd, _, stderr := command(t, layouts, c.args...)
			var failed *exec.ExitError
			require.ErrorAs(t, cmd.Run(), &failed)
			require.Equal(t, 1, failed.ExitCode())
			require.Contains(t, stderr.String(), c.want)
			require.Equal(t, 1, strings.Count(stderr.String(), "\n"), stderr.String())
		})
	}
}

func TestVersionNamesBothProjectsAndTheGadgets(t *testing.T) {
	layouts := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(layouts, "cuda_alloc"), 0o755))
	cmd, stdout, stderr := command(t, layouts, "version")
	require.NoError(t, cmd.Run(), stderr.String())
	require.Contains(t, stdout.String(), "ig-gpu "+version)
	require.Contains(t, stdout.String(), "Inspektor Gadget v")
	require.Contains(t, stdout.String(), "gadgets: cuda_alloc")
}
