// SPDX-License-Identifier: Apache-2.0

package launches

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/simulated"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/tracer"
)

// TestNewEventsAreBounded: a tenant that records one new event after the other does not evict those of others
// between two uses.
func TestNewEventsAreBounded(t *testing.T) {
	const events, most = 30000, 8192 // NEW_STREAM_FACTS
	lib := simulated.DriverCopy(t)
	g := start(t, lib, tracer.Options{Offset: 10}, nil)
	began := tracer.Second()
	python(t, `
for n in range(int(sys.argv[2])):
    event = c_uint64()
    assert cuda.cuEventCreate(byref(event), c_uint(0)) == 0
    assert cuda.cuEventRecord(event, c_uint64(0)) == 0
`, lib, strconv.Itoa(events))
	allowed := most * (tracer.Second() - began + 1)
	n := g.Len("stream_facts")
	require.LessOrEqual(t, n, min(allowed, events))
	require.GreaterOrEqual(t, n, most/2)
	require.Equal(t, events, n+g.Refused(tracer.QuotaFacts), "what is not in the table is counted")
}
