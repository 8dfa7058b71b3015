// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"testing"
	"time"
)

func TestZZFirst(t *testing.T) {
	g := start(t, 1)
	t.Logf("traps %+v", g.traps)
	p := loop(t, 200000)
	for range 8 {
		d := run(t, p, 2000)
		t.Logf("%+v state %+v", d, g.budget.State())
	}
	time.Sleep(300 * time.Millisecond)
	for _, r := range g.totals() {
		t.Logf("%s %d: %d ± %d, %d ± %d bytes, %d ns", text(r.API[:]), r.Function, r.Calls, r.CallsError, r.Bytes, r.BytesError, r.HostNS)
	}
	for _, r := range g.rows() {
		t.Logf("%s %d: %d ± %d, drawn %d, %d ± %d bytes, %d ns", text(r.API[:]), r.Function, r.Calls, r.CallsError, r.Drawn, r.Bytes, r.BytesError, r.HostNS)
	}
}
