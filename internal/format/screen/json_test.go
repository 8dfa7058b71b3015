// SPDX-License-Identifier: Apache-2.0

package screen

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNoJSONDrivesATerminal(t *testing.T) {
	for text, want := range map[string]string{
		"naïve 名前 �\n":           `"naïve 名前 �\n"`,
		"\u009b2J\u0085\x7f\x1b": `"\u009b2J\u0085\u007f\u001b"`,
		"\u202eabc\U000e0001":    `"\u202eabc\udb40\udc01"`,
	} {
		b, err := json.Marshal(text)
		require.NoError(t, err)
		b = JSON(b)
		require.Equal(t, want, string(b))
		require.Equal(t, Clean(string(b)), string(b))
		var back string
		require.NoError(t, json.Unmarshal(b, &back))
		require.Equal(t, text, back)
	}
}
