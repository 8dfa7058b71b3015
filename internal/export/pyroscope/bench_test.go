// SPDX-License-Identifier: Apache-2.0

package pyroscope

import (
	"bytes"
	"fmt"
	"testing"

	pprof "github.com/google/pprof/profile"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/export/series"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile/fixture"
)

// A busy node: 5,000 stacks of 200 processes, each of its own container, in one
// window.
func BenchmarkEncode(b *testing.B) {
	p := fixture.Large(5000)
	for i := range p.Rows {
		p.Rows[i].Process.ID = uint64(i % 200)
		p.Rows[i].Process.Container = fmt.Sprintf("container-%d", i%200)
	}
	w := windowOf(p)
	for _, levels := range []bool{false, true} {
		b.Run(fmt.Sprintf("levels=%v", levels), func(b *testing.B) {
			b.ReportAllocs()
			e := Encoder{Levels: series.Levels{Inuse: levels}} // as in a run: it is kept
			for b.Loop() {
				requests, err := e.Encode(w)
				if err != nil {
					b.Fatal(err)
				}
				var bytes int64
				for _, r := range requests {
					bytes += r.Bytes
				}
				b.ReportMetric(float64(bytes), "bytes/window")
			}
		})
	}
}

// Not larger than the output of google/pprof itself.
func TestSizeIsThatOfTheReferenceEncoder(t *testing.T) {
	requests, err := (&Encoder{Levels: series.Levels{Inuse: true}}).Encode(windowOf(fixture.Large(2000)))
	require.NoError(t, err)
	for _, r := range requests {
		for _, s := range r.Push.Series {
			ours := s.Samples[0].RawProfile
			p, err := pprof.ParseData(ours)
			require.NoError(t, err)
			var theirs bytes.Buffer
			require.NoError(t, p.Write(&theirs))
			require.LessOrEqual(t, len(ours), theirs.Len()*11/10)
		}
	}
}
