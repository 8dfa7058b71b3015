// SPDX-License-Identifier: Apache-2.0

package stock

import (
	"fmt"
	"os"
	"testing"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/utils/host"
)

// TestMain mounts file systems without which Inspektor Gadget ends the process: debugfs
// and tracefs are often missing in containers.
func TestMain(m *testing.M) {
	if err := host.Init(host.Config{AutoMountFilesystems: true}); err != nil {
		fmt.Fprintln(os.Stderr, "mount debugfs and tracefs for the tests:", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}
