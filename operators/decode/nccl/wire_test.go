// SPDX-License-Identifier: Apache-2.0

package nccl

import (
	"bytes"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// Rows hold names that a process chose.
func FuzzDecode(f *testing.F) {
	for _, size := range []int{CommunicatorBytes, SumBytes, PeerBytes, EventBytes} {
		f.Add(make([]byte, size))
		f.Add(bytes.Repeat([]byte{0xff}, size))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if c, err := DecodeCommunicator(b); err == nil {
			require.LessOrEqual(t, len(c.Operations), Ring)
			require.True(t, utf8.ValidString(c.Name))
		}
		if s, err := DecodeSum(b); err == nil {
			require.True(t, utf8.ValidString(s.Op))
		}
		if p, err := DecodePeer(b); err == nil {
			require.True(t, utf8.ValidString(p.Op))
		}
		if e, err := DecodeEvent(b); err == nil {
			require.True(t, utf8.ValidString(e.Op))
		}
	})
}
