// SPDX-License-Identifier: Apache-2.0

package ig

import (
	"testing"

	"github.com/cilium/ebpf"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
	"github.com/stretchr/testify/require"
)

// listing is a Context that lists its variables.
type listing map[string]any

func (l listing) GetVar(name string) (any, bool) { v, ok := l[name]; return v, ok }
func (l listing) SetVar(name string, v any)      { l[name] = v }
func (l listing) GetVars() map[string]any        { return l }

func TestLRUMapsHaveRoomForWhatProcessorsKeep(t *testing.T) {
	for _, c := range []struct {
		processors int
		small      uint32
	}{{2, 4096}, {16, 4096}, {17, 2048 + 17*128}, {256, 2048 + 256*128}} {
		gc := listing{"config": "other"}
		spec := func(name string, kind ebpf.MapType, entries uint32) *ebpf.MapSpec {
			m := &ebpf.MapSpec{Type: kind, MaxEntries: entries}
			gc.SetVar(operators.MapSpecPrefix+name, m)
			return m
		}
		off, small := spec("off", ebpf.LRUHash, 1), spec("small", ebpf.LRUHash, 4096)
		large, hash := spec("large", ebpf.LRUHash, 262144), spec("hash", ebpf.Hash, 4096)
		require.NoError(t, EnlargeLRU(gc, c.processors))
		require.Equal(t, []uint32{1, c.small, 262144, 4096}, []uint32{off.MaxEntries, small.MaxEntries, large.MaxEntries, hash.MaxEntries},
			"%d processors", c.processors)
	}
	var other struct{ Context }
	require.Error(t, EnlargeLRU(other, 2))
}
