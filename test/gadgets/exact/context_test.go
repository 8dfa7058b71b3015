// SPDX-License-Identifier: Apache-2.0

package exact

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/simulated"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/tracer"
)

// That a context is made shows in the time that its retaining takes, to which what the thread waits for
// a processor does not belong, as the kernel counts it. It counts sleep, too, of a thread that is moved.
func TestAContextIsNotMadeByAThreadThatWaitsForAProcessor(t *testing.T) {
	const moved = 200
	dir := t.TempDir()
	lib, others := filepath.Join(dir, "libcuda.so.1"), filepath.Join(dir, "others.c")
	require.NoError(t, os.WriteFile(others, othersThan(t, "cuDevicePrimaryCtxRetain"), 0o600))
	out, err := exec.Command("cc", "-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o", lib, "testdata/busy.c", others).CombinedOutput()
	require.NoError(t, err, string(out))
	tr := tracer.Start(t, lib, tracer.Options{})
	p := subject.Start(t, exec.Command("python3", "testdata/busy.py", lib, strconv.Itoa(moved)))
	p.Expect("ready")
	p.Say("")
	p.Expect("ready")
	var made []int32
	for _, r := range tr.RowsOf(p.PID()) {
		require.Equal(t, "context", r.Kind)
		made = append(made, r.Device)
	}
	slices.Sort(made)
	require.NotContains(t, made, int32(0))
	require.Contains(t, made, int32(1))
	require.Len(t, made, 1+moved)
}

// othersThan is C code of the driver's other functions, which do nothing: all of them have probes.
func othersThan(t *testing.T, name string) []byte {
	t.Helper()
	var code bytes.Buffer
	for symbol, isDefined := range tracer.Exports(t, simulated.DriverCopy(t)) {
		if isDefined && strings.HasPrefix(symbol, "cu") && symbol != name {
			fmt.Fprintf(&code, "int %s(void) { return 0; }\n", symbol)
		}
	}
	return code.Bytes()
}
