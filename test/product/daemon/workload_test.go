// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"testing"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject"
)

// startSteps starts a process that has loaded the driver.
func startSteps(t testing.TB, env ...string) *subject.Steps {
	t.Helper()
	s := subject.StartSteps(t, env...)
	s.Load()
	return s
}
