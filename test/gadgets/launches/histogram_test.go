// SPDX-License-Identifier: Apache-2.0

package launches

import (
	"encoding/binary"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/simulated"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/tracer"
)

// TestAFullHistogramStays: a bucket that has as many calls as it counts does not begin again.
func TestAFullHistogramStays(t *testing.T) {
	const most, calls = 0xff000000, 10 // TIME_MOST
	lib := simulated.DriverCopy(t)
	g := start(t, lib, tracer.Options{Offset: 10}, nil)
	p := subject.Start(t, exec.Command("python3", "-c", prelude+`
f = get(b"often")
for n in range(2):
    for m in range(10):
        launch(f)
    print("ready", flush=True)
    sys.stdin.readline()
`, lib))
	row := func() call {
		p.Expect("ready")
		for _, row := range g.rows() {
			if text(row.API[:]) == launchAPI {
				return row
			}
		}
		t.Fatal("no row")
		return call{}
	}
	before := row()
	require.EqualValues(t, calls, sum(before.Time[:]))

	const slots, pad = len(call{}.Time), 4 // the last fields of struct row
	rows := g.Maps["rows_by_stack"]
	var key, value []byte
	for it := rows.Iterate(); it.Next(&key, &value); {
		for n := range slots {
			binary.NativeEndian.PutUint32(value[len(value)-pad-4*(slots-n):], 1<<32-5)
		}
		require.NoError(t, rows.Put(key, value))
	}
	p.Say("")
	after := row()
	require.EqualValues(t, 2*calls, after.Calls)
	for _, n := range after.Time {
		require.GreaterOrEqual(t, n, uint32(most))
	}
	p.Say("")
	p.End()
}

func sum(counts []uint32) (all uint64) {
	for _, n := range counts {
		all += uint64(n)
	}
	return all
}
