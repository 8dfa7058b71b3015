// SPDX-License-Identifier: Apache-2.0

// Package kernels runs the product on other kernels than this machine's, each in
// a virtual machine (package vm): does the verifier take every program, is
// bin/ig-gpu exact, does the image work on Inspektor Gadget's own ig.
//
//	make test-kernels KERNELS="6.1 6.12 arm64-6.1"
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

// limit for one virtual machine. On two idle processors it needs 4 minutes, and one
// of arm64, with three versions of Python, up to 10.
func limit(kernel string) time.Duration {
	if strings.HasPrefix(kernel, "arm64-") {
		return 30 * time.Minute
	}
	return 15 * time.Minute
}

func TestKernels(t *testing.T) {
	kernels := strings.Fields(os.Getenv("KERNELS"))
	if len(kernels) == 0 {
		t.Skip("KERNELS is empty: make test-kernels")
	}
	self, err := os.Executable()
	require.NoError(t, err)
	const source = "../../gadgets/cuda_alloc/program.bpf.c"
	for _, kernel := range kernels {
		t.Run(kernel, func(t *testing.T) {
			switch {
			case old.MatchString(kernel):
				object := bpftest.Compile(t, source, "-mcpu=v2", "-DLINUX_5_10")
				runInside(t, kernel, self, object, inside+"=1 "+pythonsVariable+"=python3 "+
					variantVariable+"=_linux_5_10", "Load", "Product", "Stock", "Refused")
			case strings.HasPrefix(kernel, "arm64-"):
				onARM64(t, kernel)
			default:
				object := bpftest.Compile(t, source, "-mcpu=v3")
				run(t, "cc", "-O1", "-fno-omit-frame-pointer", "-o", "../../build/native", "testdata/native.c", "-ldl")
				runInside(t, kernel, self, object,
					inside+"=1 "+pythonsVariable+"=python3", "Load", "Product", "Native", "Stock", "StockExported", "StockPython")
			}
		})
	}
}

// onARM64 runs there what test/kernels/arm64.sh has built: tests of this package, and
// the truth tests of the unwinder.
func onARM64(t *testing.T, kernel string) {
	t.Helper()
	pythons := []string{"python3.9", "python3.11", "python3.13"}
	t.Run("product", func(t *testing.T) {
		runInside(t, kernel, arm64+"kernels.test", "../../build/bpf/cuda_alloc/arm64.bpf.o",
			fmt.Sprintf("%s=arm64 %s='%s'", inside, pythonsVariable, strings.Join(pythons, " ")),
			"Load", "Product", "Native", "Entries")
	})
	t.Run("unwinder", func(t *testing.T) {
		run(t, "cp", bpftest.CompileFor(t, "arm64", "../unwind/testdata/unwind.bpf.c"), arm64)
		var list strings.Builder // see test/unwind/pythons.sh
		for _, python := range pythons {
			minor := strings.TrimPrefix(python, "python3.")
			fmt.Fprintf(&list, "3.%s\t%[1]s\tstatic\tDebian, arm64\t-\t/usr/bin/%s\n", minor, python)
		}
		require.NoError(t, os.WriteFile(arm64+"pythons", []byte(list.String()), 0o644))
		tests := []string{"FramesEqualGetframe", "ForkedChildWithoutParentEvents", "DeepStackKeepsInnermost",
			"PidNamespace", "ForeignThreads"}
		command := fmt.Sprintf("cd ../unwind && %s=%s PYTHONS=%spythons %[2]sunwind.test -test.v -test.run '^Test(%[4]s)$'",
			bpftest.PrebuiltVariable, arm64, arm64, strings.Join(tests, "|"))
		runTests(t, kernel, command, tests)
	})
}

// arm64 is where what runs on arm64 is; from the directory of each test.
const arm64 = "../../build/arm64/"

// runInside runs tests of this package on a kernel.
func runInside(t *testing.T, kernel, program, object, environment string, tests ...string) {
	t.Helper()
	command := fmt.Sprintf("%s %s='%s' '%s' -test.v -test.run '^Test(%s)$'",
		environment, objectVariable, object, program, strings.Join(tests, "|"))
	runTests(t, kernel, command, tests)
}

func runTests(t *testing.T, kernel, command string, tests []string) {
	t.Helper()
	r := vm.Run(t, kernel, command, limit(kernel))
	t.Logf("Linux %s, %v:\n%s%s", r.Release, r.Wall.Round(time.Second), r.Stdout, r.Stderr)
	require.Zero(t, r.Status)
	// Each of them has run: a test that skips itself, or is not there, passes.
	for _, name := range tests {
		require.Contains(t, r.Stdout, "--- PASS: Test"+name+" (")
	}
}
