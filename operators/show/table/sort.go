// SPDX-License-Identifier: Apache-2.0

package table

import (
	"cmp"
	"slices"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
)

// maxFields is how many fields rows are sorted by.
const maxFields = 3

// place of a row before it is sorted.
type place struct {
	values [maxFields]uint64
	at     int
}

// sortRows sorts by the first field that differs, the largest first, and else leaves the order. The fields are
// read once: a table may have tens of thousands of rows, each second.
func sortRows(rows datasource.DataArray, fields []datasource.FieldAccessor) {
	order := make([]place, rows.Len())
	for n := range order {
		order[n].at = n
		row := rows.Get(n)
		for f, field := range fields[:min(len(fields), maxFields)] {
			order[n].values[f], _ = field.Uint64(row)
		}
	}
	slices.SortFunc(order, func(a, b place) int {
		for f := range a.values {
			if a.values[f] != b.values[f] {
				return cmp.Compare(b.values[f], a.values[f])
			}
		}
		return cmp.Compare(a.at, b.at)
	})
	for n := range order { // each circle of rows that change places
		for here := n; order[here].at != here; {
			from := order[here].at
			order[here].at = here
			if from != n {
				rows.Swap(here, from)
			}
			here = from
		}
	}
}
