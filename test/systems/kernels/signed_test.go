// SPDX-License-Identifier: Apache-2.0

package kernels

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/signing"
)

// signedImage puts a gadget's image into a registry, signed, and returns the arguments by
// which ig runs it: it trusts the given key, and pulls the image again. First it must
// refuse the image with another key.
func signedImage(t *testing.T, gadget string) (args []string) {
	t.Helper()
	run(t, "ip", "link", "set", "lo", "up")
	host := signing.StartRegistry(t)
	repository := host + "/gadgets/" + gadget
	digest := signing.Push(t, built(t, "build/images/"+gadget+".tar"), "ghcr.io/gpu-gadgets/"+gadget+":latest", repository, "v1")
	key, public := signing.NewKey(t)
	signing.Sign(t, key, repository, digest)
	with := func(public string) []string {
		return []string{"run", repository + ":v1", "--public-keys=" + public, "--insecure-registries", host,
			"--pull", "always", "--auto-mount-filesystems", "--host", "-o", "json"}
	}
	_, others := signing.NewKey(t)
	out, err := exec.Command(stockIG(t), append(with(others), "--timeout", "5")...).CombinedOutput()
	require.Error(t, err, "another key: %s", out)
	require.Contains(t, string(out), "the image was not signed by the provided keys")
	require.False(t, strings.Contains(string(out), `"reason":`), "it ran: %s", out)
	record(t, "wrong key", "refused")
	return with(public)
}
