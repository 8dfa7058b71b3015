// SPDX-License-Identifier: Apache-2.0

package collective

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAProcessIsReplacedInAFullTable: a rank comes back as another process where there is room for no
// more, of its own tenant or of another one. Whatever is refused, nothing is left half removed.
func TestAProcessIsReplacedInAFullTable(t *testing.T) {
	const most = 8
	now := 1000 * second
	at := func(hash, process uint64, tenant string) Observation {
		o := rank(0, 1, now, now)
		o.Communicator.Hash, o.Process.ID, o.Tenant = hash, process, tenant
		return o
	}
	for name, c := range map[string]struct {
		tenant string
		want   error
		left   uint64 // the process that is the rank then
	}{
		"by its own tenant":     {"many", nil, 100},
		"by one with room":      {"new", nil, 100},
		"by one without room":   {"others", ErrFull, 1},
		"by one that has fewer": {"few", nil, 100},
	} {
		t.Run(name, func(t *testing.T) {
			a, err := New(Config{MaxRanks: most})
			require.NoError(t, err)
			for n := range uint64(most) {
				tenant := "many"
				switch {
				case n >= most-2:
					tenant = "others"
				case n == most-3:
					tenant = "few"
				}
				require.NoError(t, a.Observe(at(n+1, n+1, tenant)))
			}
			later := at(1, 100, c.tenant)
			later.At += second
			require.ErrorIs(t, a.Observe(later), c.want)
			require.Equal(t, most, a.ranks)
			require.Len(t, a.comms, most)
			require.Equal(t, c.left, a.comms[1].members[0].Process.ID)

			a.Suspects(now)
			a.Quiet(now)
			a.Ranks(now)
			a.Gone(later.Process, now)
			a.Evaluate(now + second)
			a.Evaluate(10000 * second)
			require.Zero(t, a.ranks)
			require.Empty(t, a.comms)
			require.Empty(t, a.members)
		})
	}
}
