// SPDX-License-Identifier: Apache-2.0

package otlp

import (
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"

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
	b.ReportAllocs()
	e := &Encoder{Levels: series.Levels{Inuse: true}} // as in a run: it is kept
	for b.Loop() {
		var bytes int
		for _, r := range e.Profiles(w) {
			bytes += proto.Size(r)
		}
		b.ReportMetric(float64(bytes), "bytes/window")
	}
}
