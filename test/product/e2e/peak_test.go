// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject"
)

// TestThePeakHasWhatWasHeldThen: a profile has the lines that held the memory when the process
// held the most, although they have freed it since and others hold more now, and that this
// was the driver's own highest value.
func TestThePeakHasWhatWasHeldThen(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "p.pb.gz")
	w := subject.StartSteps(t)
	w.Load()
	r := start(t, "--pid", fmt.Sprint(w.PID()), "--pprof-out", path)
	r.waitAttached(w.PID())
	w.Do("alloc kv_cache 3 1000000")
	w.Do("alloc logits 10 5000")
	r.waitRows("rows at the peak", w.PID(), allocs(13))
	w.Do("free kv_cache 2")
	w.Do("free logits 10")
	r.waitRows("what is left", w.PID(), func(rows []row) bool {
		var sum uint64
		for _, row := range rows {
			sum += row.InuseBytes
		}
		return sum == 1000000
	})
	w.Do("alloc weights 1 777777")
	r.waitRows("rows at the end", w.PID(), allocs(14))
	code, _ := r.interrupt()
	require.Zero(t, code, r.errors())

	truth := w.Truth()
	p, sums := readProfile(t, path)
	require.EqualValues(t, truth.PeakBytes, sums["peak_space"])
	require.EqualValues(t, 3050000, sums["peak_space"])
	require.EqualValues(t, truth.InUseBytes(), sums["inuse_space"])
	held := map[string]int64{}
	for _, s := range p.Sample {
		for i, kind := range p.SampleType {
			if kind.Type == "peak_space" {
				for _, l := range s.Location {
					for _, line := range l.Line {
						held[line.Function.Name] += s.Value[i]
					}
				}
			}
		}
	}
	require.EqualValues(t, []int64{3000000, 50000, 0}, []int64{held["kv_cache"], held["logits"], held["weights"]})
	require.Len(t, p.Comments, 1)
	require.Regexp(t, fmt.Sprintf(`^python3\[%d\] held the most at \d\d:\d\d:\d\d: 2\.91 MiB, exactly$`, w.PID()), p.Comments[0])
	require.Contains(t, r.errors(), p.Comments[0])
}
