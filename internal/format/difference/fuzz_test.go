// SPDX-License-Identifier: Apache-2.0

package difference

import (
	"bytes"
	"testing"

	"github.com/gpu-gadgets/gpu-gadgets/internal/format/pprof"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile/fixture"
)

// Both files of ig-gpu diff may come from anywhere.
func FuzzFiles(f *testing.F) {
	var files [2]bytes.Buffer
	for n, p := range []*profile.Profile{fixture.Small(), fixture.Earlier()} {
		if err := pprof.Encode(&files[n], p); err != nil {
			f.Fatal(err)
		}
	}
	f.Add(files[1].Bytes(), files[0].Bytes(), 0)
	f.Add(files[0].Bytes(), []byte{}, 80)
	f.Fuzz(func(t *testing.T, first, second []byte, width int) {
		before, err := pprof.Decode(bytes.NewReader(first))
		if err != nil {
			return
		}
		after, err := pprof.Decode(bytes.NewReader(second))
		if err != nil {
			return
		}
		changes := profile.Diff(before, after)
		if err := Write(&bytes.Buffer{}, changes, Options{Limit: 3, Width: width}); err != nil {
			t.Fatal(err)
		}
	})
}
