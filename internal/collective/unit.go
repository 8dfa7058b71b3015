// SPDX-License-Identifier: Apache-2.0

package collective

// unit names a process, or, if that has several GPUs, as with JAX and ncclCommInitAll, one of these. It does one thing after
// the other, so it is not at fault in one communicator while it waits in another.
type unit struct {
	process processKey
	device  int // None: all of the process
}

// divide sets the unit of each rank in the items.
func (a *Analyzer) divide(items []*stuck) {
	known := map[processKey]bool{}
	for _, s := range items {
		for _, all := range [][]*member{s.missing, s.waiting} {
			for _, m := range all {
				m.unit = a.unitOf(m, known)
			}
		}
	}
}

// unitOf returns that of a rank. known has which processes have several GPUs.
func (a *Analyzer) unitOf(m *member, known map[processKey]bool) unit {
	key := m.Process.key()
	several, isKnown := known[key]
	if !isKnown {
		several = a.hasSeveral(key)
		known[key] = several
	}
	if several {
		return unit{key, m.Device}
	}
	return unit{key, None}
}

// hasSeveral reports whether a process has ranks on several GPUs. If the GPU of one of them is not known, they cannot be
// distinguished.
func (a *Analyzer) hasSeveral(p processKey) bool {
	first, several := None, false
	for m := range a.members[p] {
		switch {
		case m.Device < 0:
			return false
		case first == None:
			first = m.Device
		case m.Device != first:
			several = true
		}
	}
	return several
}
