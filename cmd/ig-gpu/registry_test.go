// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/signing"
)

// push does the same as `make images REGISTRY=…`, with the test gadget. It returns the
// digest that it has written for the chart.
func push(t *testing.T, to, tag string) (digest string) {
	t.Helper()
	dir := t.TempDir()
	out, err := exec.Command("go", "run", "../gadget-images", "-f", "../gadget-images/testdata/build.yaml",
		"-o", dir, "-objects", filepath.Join(dir, "bpf"), "-push", to, "-tag", tag, "-plain-http").CombinedOutput()
	require.NoError(t, err, string(out))
	values, err := os.ReadFile(filepath.Join(dir, "digests.yaml"))
	require.NoError(t, err)
	require.Contains(t, string(values), "repository: "+to+"\n")
	found := regexp.MustCompile(`execs: (sha256:[0-9a-f]{64})`).FindSubmatch(values)
	require.NotNil(t, found, string(values))
	return string(found[1])
}

// pulled runs the gadget of a reference with an image store that has nothing yet.
func pulled(t *testing.T, reference string, args ...string) (rows, errors string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	host, _, _ := strings.Cut(reference, "/")
	cmd := exec.CommandContext(ctx, "unshare", append([]string{"-m", "sh", "-ec",
		`mkdir -p /var/lib/ig; mount -t tmpfs none /var/lib/ig; exec "$@"`, "sh", os.Args[0],
		"run", reference, "--host", "--timeout", "3", "-o", "json", "--insecure-registries", host}, args...)...)
	cmd.Env = append(os.Environ(), layoutsVariable+"="+t.TempDir())
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	require.NoError(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		require.NoError(t, exec.Command("/bin/true").Run())
		select {
		case err := <-ended:
			return stdout.String(), stderr.String(), err
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func TestPushedImagesAreRunByTagAndDigest(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: loads eBPF programs")
	}
	repository := signing.StartRegistry(t) + "/team/gadgets"
	digest := push(t, repository, "v1")
	for _, reference := range []string{":v1", "@" + digest, ":v1@" + digest} {
		rows, text, err := pulled(t, repository+"/execs"+reference, "--verify-image=false")
		require.NoError(t, err, text)
		require.Contains(t, rows, `"comm":"true"`, reference)
	}
	_, text, err := pulled(t, repository+"/execs@sha256:"+strings.Repeat("0", 64), "--verify-image=false")
	require.Error(t, err)
	require.Contains(t, text, "not found")
}

// The signature is checked by Inspektor Gadget's own code.
func TestSignedImagesRunAndOthersDoNot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: loads eBPF programs")
	}
	repository := signing.StartRegistry(t) + "/gadgets"
	digest := push(t, repository, "v1")
	key, public := signing.NewKey(t)
	_, others := signing.NewKey(t)
	reference := repository + "/execs:v1"

	_, text, err := pulled(t, reference, "--public-keys="+public)
	require.Error(t, err, "nobody has signed it")
	require.Contains(t, text, "verifying image")

	signing.Sign(t, key, repository+"/execs", digest)
	rows, text, err := pulled(t, reference, "--public-keys="+public)
	require.NoError(t, err, text)
	require.Contains(t, rows, `"comm":"true"`)
	require.NotContains(t, text, "verif", "nothing to warn of")

	_, text, err = pulled(t, reference, "--public-keys="+others)
	require.Error(t, err)
	require.Contains(t, text, "the image was not signed by the provided keys")

	// A signature of another image says nothing about this one.
	signing.Sign(t, key, repository+"/execs", "sha256:"+strings.Repeat("1", 64))
	other := signing.Repository(t, repository+"/execs")
	wrong, err := other.Resolve(t.Context(), signing.Tag("sha256:"+strings.Repeat("1", 64)))
	require.NoError(t, err)
	require.NoError(t, other.Tag(t.Context(), wrong, signing.Tag(digest)))
	_, text, err = pulled(t, reference, "--public-keys="+public)
	require.Error(t, err)
	require.Contains(t, text, "payload digest does not correspond to image")
}
