// SPDX-License-Identifier: Apache-2.0

package loopback

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"sync"
)

// Exporter returns the path of gpu-exporter, which is linked once for all packages two folders below
// test.
var Exporter = sync.OnceValues(func() (string, error) {
	path, err := filepath.Abs("../../../build/daemon/test/gpu-exporter")
	if err != nil {
		return "", err
	}
	out, err := exec.Command("go", "build", "-buildvcs=false", "-ldflags", "-s -w", "-o", path, "../../../cmd/gpu-exporter").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build gpu-exporter: %w: %s", err, out)
	}
	return path, nil
})
