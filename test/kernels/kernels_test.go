// SPDX-License-Identifier: Apache-2.0

// Package kernels runs the product on other kernels than this machine's, each in
// a virtual machine (package vm): does the verifier take every program, is
// bin/ig-gpu exact, does the image work on Inspektor Gadget's own ig.
//
//	make test-kernels KERNELS="6.1 6.12"
package kernels

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/bpftest"
	"github.com/gpu-gadgets/gpu-gadgets/test/vm"
)

// tooOld are kernels that ig-gpu refuses.
var tooOld = regexp.MustCompile(`^5\.`)

// limit for one virtual machine; an idle one of two processors needs 3 minutes.
const limit = 10 * time.Minute

func TestKernels(t *testing.T) {
	kernels := strings.Fields(os.Getenv("KERNELS"))
	if len(kernels) == 0 {
		t.Skip("KERNELS is empty: make test-kernels")
	}
	self, err := os.Executable()
	require.NoError(t, err)
	object := bpftest.Compile(t, "../../gadgets/cuda_alloc/program.bpf.c", "-mcpu=v3")
	for _, kernel := range kernels {
		t.Run(kernel, func(t *testing.T) {
			if tooOld.MatchString(kernel) {
				refuses(t, kernel)
				return
			}
			command := fmt.Sprintf("%s=1 %s='%s' '%s' -test.v -test.run '^Test(Load|Product|Stock|StockPython)$'",
				inside, objectVariable, object, self)
			r := vm.Run(t, kernel, command, limit)
			t.Logf("Linux %s, %v:\n%s%s", r.Release, r.Wall.Round(time.Second), r.Stdout, r.Stderr)
			require.Zero(t, r.Status)
			// Each of them has run: a test that skips itself, or is not there, passes.
			for _, name := range []string{"Load", "Product", "Stock ", "StockPython "} {
				require.Contains(t, r.Stdout, "--- PASS: Test"+name)
			}
		})
	}
}

// refuses: one line that says which kernel is needed.
func refuses(t *testing.T, kernel string) {
	t.Helper()
	program, err := filepath.Abs("../../bin/ig-gpu")
	require.NoError(t, err)
	r := vm.Run(t, kernel, program+" run cuda_alloc --host --timeout 5", limit)
	t.Logf("Linux %s, %v:\n%s%s", r.Release, r.Wall.Round(time.Second), r.Stdout, r.Stderr)
	require.Equal(t, 1, r.Status)
	require.Empty(t, r.Stdout)
	require.True(t, strings.HasPrefix(r.Stderr, "Error: ig-gpu needs Linux 6.1 or newer, this is "+r.Release), r.Stderr)
	require.Equal(t, 1, strings.Count(r.Stderr, "\n"), r.Stderr)
}
