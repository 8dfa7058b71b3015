// SPDX-License-Identifier: Apache-2.0

package ig

import (
	"fmt"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
)

// lruReserve is how many entries of an LRU map a processor may keep for itself, used or not (LOCAL_FREE_TARGET in
// kernel/bpf/bpf_lru_list.c).
const lruReserve = 128

// EnlargeLRU gives the LRU maps of a gadget room for what so many processors may keep for themselves, in addition to half of
// their size. Otherwise a processor that finds no free entry evicts the one that it made last, long before the map
// is full; Linux 6.17 bounds what they keep (d4adf1c9ee77). Maps with one entry belong to what is off, and stay as they
// are. Call it last: other operators set the size of maps, too.
func EnlargeLRU(gc Context, processors int) error {
	all, ok := gc.(interface{ GetVars() map[string]any })
	if !ok {
		return fmt.Errorf("enlarge LRU maps: %T does not list its variables", gc)
	}
	for name, v := range all.GetVars() {
		m, ok := v.(*ebpf.MapSpec)
		if ok && strings.HasPrefix(name, operators.MapSpecPrefix) && m.Type == ebpf.LRUHash && m.MaxEntries > 1 {
			m.MaxEntries = max(m.MaxEntries, m.MaxEntries/2+uint32(lruReserve*processors))
		}
	}
	return nil
}
