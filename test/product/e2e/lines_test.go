// SPDX-License-Identifier: Apache-2.0

package e2e

// byLine sums rows of the same line, kind and device: the first call of a line may have fewer
// native frames than later ones, since its unwind information was not read yet.
func byLine(rows []row) (sums []row) {
	type key struct {
		frame, kind string
		device      int32
	}
	at := map[key]int{}
	for _, r := range rows {
		k := key{r.Frame, r.Kind, r.Device}
		n, ok := at[k]
		if !ok {
			at[k] = len(sums)
			sums = append(sums, r)
			continue
		}
		s := &sums[n]
		s.InuseBytes += r.InuseBytes
		s.InuseObjects += r.InuseObjects
		s.AllocBytes += r.AllocBytes
		s.AllocObjects += r.AllocObjects
		s.FreedBytes += r.FreedBytes
		s.FreedObjects += r.FreedObjects
		s.OldBytes += r.OldBytes
		s.OldObjects += r.OldObjects
	}
	return sums
}
