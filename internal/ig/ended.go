// SPDX-License-Identifier: Apache-2.0

package ig

import (
	"time"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
)

// endedGrace is more than the interval at which rows are read (1 s).
const endedGrace = 1200 * time.Millisecond

// EndWithProcesses ends a run whose processes, those of a parameter, have all ended. What they held or did when they ended
// is read once more meanwhile.
func EndWithProcesses(gc operators.GadgetContext, param string) {
	gc.Logger().Infof("the processes of --%s have ended, and so does this run", param)
	time.AfterFunc(endedGrace, gc.Cancel)
}
