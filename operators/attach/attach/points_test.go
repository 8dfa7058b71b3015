// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/ig/attachpoint"
)

func TestPointsThatAreLastFollowTheOthers(t *testing.T) {
	var order []string
	for _, p := range points([]attachpoint.Point{{Symbol: "alloc", Last: true}, {Symbol: "free"}, {Symbol: "create", Last: true}, {Symbol: "destroy"}}) {
		order = append(order, p.Symbol)
	}
	require.Equal(t, []string{"free", "destroy", "alloc", "create"}, order)
}
