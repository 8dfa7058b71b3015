// SPDX-License-Identifier: Apache-2.0

package backends

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/compare"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/loopback"
)

// gpuLibrary is a libnvidia-ml for one made-up GPU, and the file of its processes.
func gpuLibrary(t *testing.T) (library, processes string) {
	t.Helper()
	module, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/NVIDIA/go-nvml").Output()
	require.NoError(t, err)
	library = filepath.Join(t.TempDir(), "libnvidia-ml.so.1")
	out, err := exec.Command("cc", "-std=gnu11", "-Wall", "-Wno-deprecated-declarations", "-Werror", "-shared", "-fPIC",
		"-I"+filepath.Join(strings.TrimSpace(string(module)), "pkg/nvml"), "-o", library, "nvml/nvml.c").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return library, filepath.Join(t.TempDir(), "processes")
}

// contextBytes is the simulated driver's own memory in a process.
const contextBytes = 300 << 20

// onGPU writes the driver's count for each process: its allocations and its context.
// Pinned host memory is not on the GPU.
func onGPU(t *testing.T, file string, rows []compare.Row) {
	t.Helper()
	held := map[uint32]int64{}
	for _, r := range rows {
		if held[r.PID] == 0 {
			held[r.PID] = contextBytes
		}
		if r.Kind != "host" {
			held[r.PID] += r.InUseBytes
		}
	}
	var b strings.Builder
	for pid, bytes := range held {
		fmt.Fprintf(&b, "%d %d\n", pid, bytes)
	}
	require.NoError(t, os.WriteFile(file+".new", []byte(b.String()), 0o600))
	require.NoError(t, os.Rename(file+".new", file))
}

// prometheus is a real one that scrapes these addresses.
type prometheus struct {
	server
	address string
}

func startPrometheus(t *testing.T, targets ...string) *prometheus {
	t.Helper()
	p := &prometheus{server: server{name: "Prometheus", dir: t.TempDir()}, address: loopback.FreeAddress(t)}
	config := fmt.Sprintf("global: {scrape_interval: 1s}\nscrape_configs: [{job_name: ig-gpu, static_configs: [{targets: ['%s']}]}]\n", strings.Join(targets, "', '"))
	require.NoError(t, os.WriteFile(filepath.Join(p.dir, "prometheus.yml"), []byte(config), 0o600))
	p.args = []string{built(t, "build/fixtures/prometheus/root/usr/bin/prometheus"), "--config.file=" + filepath.Join(p.dir, "prometheus.yml"),
		"--storage.tsdb.path=" + filepath.Join(p.dir, "data"), "--web.listen-address=" + p.address, "--log.level=warn"}
	p.serve(t, p.address)
	time.Sleep(time.Second) // it listens before it is ready
	return p
}
