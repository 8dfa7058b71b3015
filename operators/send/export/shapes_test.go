// SPDX-License-Identifier: Apache-2.0

package export

import (
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/export/series"
	"github.com/gpu-gadgets/gpu-gadgets/internal/export/window"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

// Each value of a profile is in the windows that the profiles are made of.
func TestEachValueOfAProfileIsInAWindow(t *testing.T) {
	values := 0
	for _, subject := range []profile.Subject{profile.Memory, profile.CPU, profile.Wall, profile.Calls} {
		for i := range reflect.TypeFor[profile.Values]().NumField() {
			var v profile.Values
			reflect.ValueOf(&v).Elem().Field(i).SetInt(1)
			// Counts belong to the value that they count.
			switch {
			case v.Launches+v.CopiedBytes+v.HostNanoseconds+v.WaitNanoseconds != 0:
				v.Calls = 1
			case v.Nanoseconds != 0:
				v.Samples = 1
			case v.DeviceNanoseconds != 0:
				v.Kernels = 1
			case v.AtPeakBytes != 0: // windows find it themselves
				v.InuseBytes = 1
			}
			for _, kind := range []string{"device", profile.KindTensor} {
				row := profile.Row{Kind: kind, Values: v}
				included := false
				for _, shape := range series.Shapes(subject, time.Second, series.Levels{Inuse: true, Peak: true}) {
					included = included || shape.Includes(row)
				}
				if !included {
					continue
				}
				values++
				r := window.NewRecorder(subject, time.Second, time.Second, time.Now())
				r.Begin()
				r.See(profile.RowID{Process: 1}, v, 0, func() profile.Row { return row })
				r.End()
				require.Len(t, r.Close(time.Now()).Rows, 1, "%v: %+v", subject, v)
			}
		}
	}
	require.Greater(t, values, 10)
}
