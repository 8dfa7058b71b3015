// SPDX-License-Identifier: Apache-2.0

package pystack

import "strings"

// roles has the work of PyTorch's threads, and for whom they do it, by the names that it gives them. All
// are those of PyTorch 2.6 (test/gadgets/pytorch, TestThreadsHaveTheirRole). The kernel keeps 15 bytes of a name.
var roles = map[string]string{
	"pt_data_pin":     "pins batches for the thread that iterates over a DataLoader",
	"pt_data_worker":  "a DataLoader's worker process",
	"pt_tcpstore":     "serves the key-value store of torch.distributed",
	"pt_nccl_watchdg": "watches a process group's collectives of NCCL",
	"pt_nccl_heartbt": "watches the watchdog of NCCL's collectives",
}

// autograd, with the number of a device, is a thread of each.
const autograd = "pt_autograd_"

// role says what a thread of this name does; empty: unknown.
func role(comm string) string {
	if device, ok := strings.CutPrefix(comm, autograd); ok && isNumber(device) {
		return "backward work on device " + device
	}
	return roles[comm]
}

func isNumber(text string) bool {
	return text != "" && strings.Trim(text, "0123456789") == ""
}
