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
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/bpftest"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/vm"
)

// old are kernels where ig-gpu runs the gadget's variant without sleepable programs.
var old = regexp.MustCompile(`^5\.`)

// limit for one virtual machine. On two idle processors it needs 4 to 10 minutes, and
// five times that on a busy machine.
const limit = 50 * time.Minute

func TestKernels(t *testing.T) {
	kernels := strings.Fields(os.Getenv("KERNELS"))
	if len(kernels) == 0 {
		t.Skip("KERNELS is empty: make test-kernels")
	}
	self, err := os.Executable()
	require.NoError(t, err)
	for _, kernel := range kernels {
		t.Run(kernel, func(t *testing.T) {
			if strings.HasPrefix(kernel, "arm64-") {
				onARM64(t, kernel)
				return
			}
			run(t, "cc", "-O1", "-fno-omit-frame-pointer", "-o", "../../../build/native", "testdata/native.c", "-ldl")
			environment := inside + "=1 " + pythonsVariable + "=python3"
			// Three machines: if an emulated one dies, only its own tests are repeated, and after
			// Faults one is of no use.
			own := []string{"Load", "Product", "Native", "HIP"}
			stock := slices.Clone(onStock)
			if old.MatchString(kernel) {
				environment += " " + variantVariable + "=" + linux510
				own[2] = "Refused"
				stock = slices.DeleteFunc(stock, func(name string) bool { return name == "StockPython" })
			}
			for name, tests := range map[string][]string{"own": own, "stock": stock, "faults": {"Faults"}} {
				if tests = wanted(tests); len(tests) > 0 {
					t.Run(name, func(t *testing.T) { runInside(t, kernel, self, environment, tests...) })
				}
			}
		})
	}
}

// onStock are the tests of Inspektor Gadget's own ig.
var onStock = []string{"Stock", "Agree", "StockExported", "StockPython", "StockLaunches", "StockRanks", "StockHIP"}

// wanted are those that the variable TESTS selects, or all. Results of others are kept.
func wanted(tests []string) []string {
	only := strings.Fields(os.Getenv("TESTS"))
	if len(only) == 0 {
		return tests
	}
	return slices.DeleteFunc(tests, func(name string) bool { return !slices.Contains(only, name) })
}

// onARM64 runs the files built by test/systems/kernels/arm64.sh: tests of this package, and
// the truth tests of the unwinder.
func onARM64(t *testing.T, kernel string) {
	t.Helper()
	pythons := []string{"python3.9", "python3.11", "python3.13"}
	environment := fmt.Sprintf("%s=arm64 %s='%s'", inside, pythonsVariable, strings.Join(pythons, " "))
	for name, tests := range map[string][]string{"product": {"Load", "Product", "Native", "Entries"}, "stock": withoutHIP(onStock)} {
		if tests = wanted(tests); len(tests) > 0 {
			t.Run(name, func(t *testing.T) { runInside(t, kernel, arm64+"kernels.test", environment, tests...) })
		}
	}
	if os.Getenv("TESTS") != "" {
		return
	}
	t.Run("unwinder", func(t *testing.T) {
		// As bpftest.Compile looks for it.
		run(t, "cp", bpftest.CompileFor(t, "arm64", "../../gadgets/unwind/testdata/unwind.bpf.c"), arm64+"unwind.o")
		var list strings.Builder // see test/gadgets/unwind/pythons.sh
		for _, python := range pythons {
			minor := strings.TrimPrefix(python, "python3.")
			fmt.Fprintf(&list, "3.%s\t%[1]s\tstatic\tDebian, arm64\t-\t/usr/bin/%s\n", minor, python)
		}
		require.NoError(t, os.WriteFile(arm64+"pythons", []byte(list.String()), 0o644))
		tests := []string{"FramesEqualGetframe", "ForkedChildWithoutParentEvents", "DeepStackKeepsInnermost",
			"PidNamespace", "ForeignThreads"}
		command := fmt.Sprintf("cd ../../gadgets/unwind && %s=%s PYTHONS=%spythons %[2]sunwind.test -test.v -test.run '^Test(%[4]s)$'",
			bpftest.PrebuiltVariable, arm64, arm64, strings.Join(tests, "|"))
		runTests(t, kernel, command, tests)
	})
}

// arm64 is the directory of files for arm64, relative to that of each test.
const arm64 = "../../../build/arm64/"

// runInside runs tests of this package on a kernel.
func runInside(t *testing.T, kernel, program, environment string, tests ...string) {
	t.Helper()
	command := fmt.Sprintf("%s '%s' -test.v -test.timeout 0 -test.run '^Test(%s)$'",
		environment, program, strings.Join(tests, "|"))
	runTests(t, kernel, command, tests)
}

func runTests(t *testing.T, kernel, command string, tests []string) {
	t.Helper()
	died := func(r vm.Result) {
		t.Logf("Linux %s, %v:\n%s%s", r.Release, r.Wall.Round(time.Second), r.Stdout, r.Stderr)
		keep(t, kernel, r.Release, r.Stdout, tests)
	}
	r := vm.Run(t, kernel, command, limit, died)
	t.Logf("Linux %s, %v:\n%s%s", r.Release, r.Wall.Round(time.Second), r.Stdout, r.Stderr)
	keep(t, kernel, r.Release, r.Stdout, tests)
	require.Zero(t, r.Status)
	// Each of them has run: a test that skips itself, or is not there, passes.
	for _, name := range tests {
		require.Contains(t, r.Stdout, "--- PASS: Test"+name+" (")
	}
}
