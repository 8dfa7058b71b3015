// SPDX-License-Identifier: Apache-2.0

package tables

import (
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRowsOfOneReadingAreOneTable(t *testing.T) {
	for in, want := range map[string]string{
		"": "",
		`{"type":"allocs","time":"1","n":1}
{"type":"allocs","time":"1","n":2}
{"type":"drops","time":"1","n":3}
{"type":"allocs","time":"2","n":4}
{"type":"ooms","n":5}
{"type":"allocs","time":"3","n":6}`: `[{"type":"allocs","time":"1","n":1},{"type":"allocs","time":"1","n":2}]
[{"type":"drops","time":"1","n":3}]
[{"type":"allocs","time":"2","n":4}]
{"type":"ooms","n":5}
[{"type":"allocs","time":"3","n":6}]
`,
		`{"time":"1"}
no JSON
[{"of":"ig itself"}]
`: `[{"time":"1"}]
no JSON
[{"of":"ig itself"}]
`,
	} {
		out, err := io.ReadAll(Reader(strings.NewReader(in)))
		require.NoError(t, err)
		require.Equal(t, want, string(out))
	}
}
