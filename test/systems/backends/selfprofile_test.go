// SPDX-License-Identifier: Apache-2.0

package backends

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestSelfProfileIsInPyroscope besides the profile of the traced program: where ig-gpu
// itself spends its time.
func TestSelfProfileIsInPyroscope(t *testing.T) {
	p := startPyroscope(t)
	w := startExample(t, "--devices", "1", "--leak", "--seconds", "25", "--step-ms", "5", "--layers", "8", "--hold", "600")
	g := trace(t, "cuda_alloc", w.PID(), "--self-profile", p.URL, "--pyroscope-url", p.URL, "--export-interval", "1s")
	w.Say("go")
	w.summaries(t, 1)
	rows := w.truth(t)
	time.Sleep(2 * time.Second)
	g.end(t)
	p.require(t, `{service_name="python3"}`, rows, columns(false)[:2], false)

	cpu := p.stored(t, "process_cpu:cpu:nanoseconds:cpu:nanoseconds", `{service_name="ig-gpu"}`)
	require.Positive(t, sum(cpu))
	ours := int64(0)
	for _, s := range cpu.Sample {
		for _, l := range s.Location {
			if strings.HasPrefix(l.Line[0].Function.Name, "github.com/gpu-gadgets/gpu-gadgets/") || strings.HasPrefix(l.Line[0].Function.Name, "main.") {
				ours += s.Value[0]
				break
			}
		}
	}
	require.Positive(t, ours, "none of ig-gpu's functions is in its profile")
	t.Logf("%v of processor time, %v of it below our functions", time.Duration(sum(cpu)), time.Duration(ours))
	node, err := os.Hostname()
	require.NoError(t, err)
	for _, labels := range p.series(t, `{service_name="ig-gpu"}`) {
		require.Contains(t, labels, "node="+node)
	}
}
