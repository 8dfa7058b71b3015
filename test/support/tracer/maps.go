// SPDX-License-Identifier: Apache-2.0

package tracer

import "github.com/stretchr/testify/require"

// Len counts the entries of a map.
func (tr *Tracer) Len(name string) int {
	tr.t.Helper()
	m := tr.Maps[name]
	require.NotNil(tr.t, m, name)
	n := 0
	var k, v []byte
	for it := m.Iterate(); it.Next(&k, &v); n++ {
	}
	return n
}
