// SPDX-License-Identifier: Apache-2.0

package kernels

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/vm"
)

// TestSuites runs whole suites on other kernels, where an emulated processor takes them
// about ten times as long:
//
//	make test-kernels-suites SUITES="gadgets/exact gadgets/launches" KERNELS=6.12
//
// RUN is a pattern of test names, as of go test -run.
func TestSuites(t *testing.T) {
	suites := strings.Fields(os.Getenv("SUITES"))
	if len(suites) == 0 {
		t.Skip("SUITES is empty: make test-kernels-suites")
	}
	kernels := strings.Fields(os.Getenv("KERNELS"))
	require.NotEmpty(t, kernels, "KERNELS says on which kernels")
	build, err := filepath.Abs("../../../build/suites")
	require.NoError(t, err)
	for _, suite := range suites {
		program := filepath.Join(build, path.Base(suite)+".test")
		run(t, "go", "test", "-c", "-ldflags", "-s -w", "-o", program, "../../"+suite)
		command := fmt.Sprintf("cd '../../%s' && '%s' -test.v -test.timeout 0 -test.run '%s'", suite, program, os.Getenv("RUN"))
		for _, kernel := range kernels {
			t.Run(kernel+"/"+suite, func(t *testing.T) {
				r := vm.Run(t, kernel, command, limit, func(r vm.Result) { t.Logf("%s%s", r.Stdout, r.Stderr) })
				t.Logf("Linux %s, %v:\n%s%s", r.Release, r.Wall, r.Stdout, r.Stderr)
				require.Zero(t, r.Status)
				require.Contains(t, r.Stdout, "--- PASS: ", "no test ran")
			})
		}
	}
}
