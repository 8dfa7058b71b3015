// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestVerdictsFollowTheFigures(t *testing.T) {
	var s Step
	s.Equal("equal", 3, "3")
	s.Equal("not equal", 3, 4)
	s.Equal("nothing", "", "")
	s.AtMost("below", "%.1f %%", 0.5, 0.5)
	s.AtMost("above", "%.1f %%", 0.5, 0.6)
	s.AtMost("nothing measured", "%.1f %%", 0.5, math.NaN())
	s.Impossible("impossible", "no GPU")
	s.Record("recorded", 7, false)
	var got []Verdict
	for _, l := range s.Lines {
		got = append(got, l.Verdict)
	}
	require.Equal(t, []Verdict{Same, Different, Different, Same, Different, Different, NotPossible, Recorded}, got)
}

func TestMarkdownKeepsItsTable(t *testing.T) {
	r := Report{Lines: []Line{{Step: "s", Name: "a|b\nc", Expected: "1", Measured: "2", Verdict: Different}}}
	var b bytes.Buffer
	require.NoError(t, r.WriteMarkdown(&b))
	require.Contains(t, b.String(), `| a\|b c | 1 | 2 | different |`+"\n")
	require.Contains(t, b.String(), "0 same, 1 different, 0 not possible, 0 recorded.")
}
