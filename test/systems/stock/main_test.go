// SPDX-License-Identifier: Apache-2.0

package stock

import (
	"fmt"
	"os"
	"testing"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/utils/host"
)

// TestMain mounts what Inspektor Gadget needs and ends the process for: containers
// often lack debugfs and tracefs.
func TestMain(m *testing.M) {
	if err := host.Init(host.Config{AutoMountFilesystems: true}); err != nil {
		fmt.Fprintln(os.Stderr, "mount debugfs and tracefs for the tests:", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}
