// SPDX-License-Identifier: Apache-2.0

package simulated

import (
	"os"
	"testing"
)

// hostVariable has the directory that test/support/fixtures/nccl.sh prints.
const hostVariable = "NCCL_HOST"

// HostNCCL is the directory of NCCL's own code for the host, above the simulated driver: its kernels are empty, and
// end when all ranks have issued the operation. Without it the test is skipped.
func HostNCCL(t testing.TB) string {
	t.Helper()
	libraries := os.Getenv(hostVariable)
	if libraries == "" {
		t.Skipf("%s is not set: make test-nccl sets it", hostVariable)
	}
	return libraries
}

// HostNCCLSettings is its environment on one machine: the simulated devices have no peers.
func HostNCCLSettings() []string { return []string{"NCCL_P2P_DISABLE=1", "NCCL_SOCKET_IFNAME=lo"} }
