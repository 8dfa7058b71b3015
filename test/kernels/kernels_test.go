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
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/bpftest"
	"github.com/gpu-gadgets/gpu-gadgets/test/vm"
)

// old are kernels where ig-gpu runs the gadget's variant without sleepable programs.
var old = regexp.MustCompile(`^5\.`)

// limit for one virtual machine; an idle one of two processors needs 3 minutes.
const limit = 10 * time.Minute

func TestKernels(t *testing.T) {
	kernels := strings.Fields(os.Getenv("KERNELS"))
	if len(kernels) == 0 {
		t.Skip("KERNELS is empty: make test-kernels")
	}
	self, err := os.Executable()
	require.NoError(t, err)
	const source = "../../gadgets/cuda_alloc/program.bpf.c"
	object := bpftest.Compile(t, source, "-mcpu=v3")
	oldObject := bpftest.Compile(t, source, "-mcpu=v2", "-DLINUX_5_10")
	for _, kernel := range kernels {
		t.Run(kernel, func(t *testing.T) {
			tests, object, variant := []string{"Load", "Product", "Stock"}, object, ""
			if old.MatchString(kernel) {
				tests, object, variant = append(tests, "Refused"), oldObject, "_linux_5_10"
			}
			command := fmt.Sprintf("%s=1 %s='%s' %s=%s '%s' -test.v -test.run '^Test(%s)$'",
				inside, objectVariable, object, variantVariable, variant, self, strings.Join(tests, "|"))
			r := vm.Run(t, kernel, command, limit)
			t.Logf("Linux %s, %v:\n%s%s", r.Release, r.Wall.Round(time.Second), r.Stdout, r.Stderr)
			require.Zero(t, r.Status)
			// Each of them has run: a test that skips itself, or is not there, passes.
			for _, name := range tests {
				require.Contains(t, r.Stdout, "--- PASS: Test"+name)
			}
		})
	}
}
