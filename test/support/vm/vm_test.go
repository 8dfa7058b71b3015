// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestCommandRunsOnTheKernel(t *testing.T) {
	kernel := os.Getenv("KERNEL")
	if kernel == "" {
		t.Skip("KERNEL is empty: it would fetch a kernel")
	}
	r := Run(t, kernel, os.Getenv("COMMAND"), 10*time.Minute, nil)
	t.Logf("%s: status %d after %v\n%s\nstderr:\n%s", r.Release, r.Status, r.Wall, r.Stdout, r.Stderr)
	require.Zero(t, r.Status)
}
