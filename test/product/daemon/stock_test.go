// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/bpftest"
)

var buildStock = sync.OnceValues(func() (string, error) {
	path, err := filepath.Abs("../../../build/vm/ig")
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	out, err := exec.Command("../../systems/kernels/stock-ig.sh").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build Inspektor Gadget's own ig: %w: %s", err, out)
	}
	return path, nil
})

// Rows of an unmodified daemon have their stacks as text of the image's WASM module.
// py_stack has no probes, so it runs there on kernels without kprobes, too;
// test/systems/kernels has cuda_alloc.
func TestExporterReadsAnUnmodifiedDaemon(t *testing.T) {
	t.Parallel()
	bpftest.RequireMapIterators(t)
	stock, err := buildStock()
	require.NoError(t, err)
	n := newNode(t)
	p := n.inStore(stock, "image", "import", "../../../build/images/py_stack.tar")
	<-p.done
	require.Zero(t, p.cmd.ProcessState.ExitCode(), p.output())
	// It reads process 1, which not every sandbox permits.
	n.daemon = n.inStore("sh", "-ec", `mount --bind /proc/$$ /proc/1; exec "$@"`, "sh",
		stock, "daemon", "-H", "unix://"+n.socket, "--tls-insecure", "--verify-image=false")
	n.waitListening()
	require.NoError(t, n.create("ghcr.io/gpu-gadgets/py_stack:latest", map[string]string{"operator.oci.pull": "never"}))

	script := filepath.Join(t.TempDir(), "busy.py")
	require.NoError(t, os.WriteFile(script, []byte("def spin():\n    while True:\n        pass\n\ndef main():\n    spin()\n\nmain()\n"), 0o644))
	busy := start(t, "python3", script)
	pyro := startPyroscope(t)
	e := startExporter(t, "--address", "stock=unix://"+n.socket, "--pyroscope-url", pyro.url)
	pid := fmt.Sprint("pid=", busy.cmd.Process.Pid)
	var found map[string]uint64
	eventually(t, "no samples of spin", func() bool {
		found = sums(pyro.stored("python_cpu", "node=stock", pid), "cpu")
		for function, ns := range found {
			// 99 samples each second represent all of it.
			if strings.HasPrefix(function, "spin (busy.py:") && time.Duration(ns) > time.Second/2 {
				return true
			}
		}
		return false
	})
	t.Log(found)
	_ = busy.cmd.Process.Kill()
	e.end()
}
