// SPDX-License-Identifier: Apache-2.0

package window

import (
	"testing"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

// The cost of the gadget's own callback each second, with 5,000 rows.
func BenchmarkReading(b *testing.B) {
	r := NewRecorder(profile.Memory, 0, 10*time.Second, begin)
	n := int64(0)
	b.ReportAllocs()
	for b.Loop() {
		n += 10
		r.Begin()
		for i := range uint64(5000) {
			r.See(profile.RowID{Process: i % 200, StackID: i, Kind: "device"}, held(n, n), 0, func() profile.Row { return profile.Row{} })
		}
		r.End()
	}
}
