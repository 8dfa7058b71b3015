// SPDX-License-Identifier: Apache-2.0

package pystack

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/vm"
)

// A row with samples, their time, and how many of these hold the GIL.
var holder = regexp.MustCompile(`[1-9][0-9]* +[0-9.]+ m?s +[1-9][0-9]* .*inner `)

var sleeper = regexp.MustCompile(`\(idle: [a-z0-9_]+, [a-z0-9_]+\): ".*"\n    sleeper \(<string>:5\)\n`)

// TestKernels runs bin/ig-gpu in virtual machines: a profile on each kernel, and a
// dump where the kernel can (6.2), or the reason why not.
//
//	KERNELS="6.1 6.12 arm64-6.1" go test -run Kernels ./test/gadgets/pystack
func TestKernels(t *testing.T) {
	kernels := strings.Fields(os.Getenv("KERNELS"))
	if len(kernels) == 0 {
		t.Skip("KERNELS is empty")
	}
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	const script = `cd %[1]s
%[2]s -c 'import threading, time
def inner():
    while True: pass
def sleeper():
    time.sleep(1000)
threading.Thread(target=sleeper, daemon=True).start()
inner()' &
sleep 1
%[3]s run py_stack --host --pid $! --timeout 4
%[3]s run py_stack --host --pid $! --mode dump 2>&1
kill $!`
	for _, kernel := range kernels {
		t.Run(kernel, func(t *testing.T) {
			python, program := pythons(t)[0], "bin/ig-gpu"
			if strings.HasPrefix(kernel, "arm64-") {
				python, program = "python3", "build/arm64/ig-gpu"
			}
			r := vm.Run(t, kernel, fmt.Sprintf(script, root, python, program), 15*time.Minute, nil)
			t.Logf("Linux %s, %v:\n%s%s", r.Release, r.Wall.Round(time.Second), r.Stdout, r.Stderr)
			if !strings.Contains(r.Stdout, "inner (<string>:3)") {
				t.Error("the profile does not have the line")
			}
			if !holder.MatchString(r.Stdout) {
				t.Error("the profile does not say that the thread holds the GIL")
			}
			if strings.HasPrefix(r.Release, "6.1.") {
				if !strings.Contains(r.Stdout, "Linux 6.2") {
					t.Error("the dump does not say which kernel it needs")
				}
			} else {
				if !strings.Contains(r.Stdout, "    inner (<string>:3)\n    <module> (<string>:7)\n") {
					t.Error("the dump does not have the stack")
				}
				if !sleeper.MatchString(r.Stdout) {
					t.Error("the dump does not say where in the kernel the other thread sleeps")
				}
			}
		})
	}
}
