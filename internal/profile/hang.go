// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
)

// Hang is a verdict of nccl_trace on ranks that wait for each other, when it was found,
// when its reason changed, and when it was over.
type Hang struct {
	// Event is found, changed or cleared, or ras: what NCCL's own RAS says of it, which is
	// in RAS (agrees, disagrees, knows more) and Text. Time is when it was reported.
	Event string
	Time  time.Time
	// Reason is one of internal/collective's, Text the verdict in one line.
	Reason, Text string
	// Communicator is the same in all ranks, Name what the program calls it.
	Communicator, Name string
	Size               int64 // ranks; 0: not known
	// Operation is what is missing, or what no rank has done, and Seq its number; "" and
	// 0 where there is no single one.
	Operation string
	Seq       int64
	// Ranks are at fault, Waiting wait, Unseen are on other nodes.
	Ranks, Waiting, Unseen []int64
	// Nodes are lost: they had ranks of Unseen, and nothing is heard of them any more.
	Nodes []string
	// Process, Rank, State, Wchan and Stack describe the first rank at fault; Rank is -1
	// and the others empty if there is none.
	Process      Process
	Rank         int64
	State, Wchan string
	Stack        stack.Stack
	Waited       time.Duration
	RAS          string
}
