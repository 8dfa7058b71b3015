// SPDX-License-Identifier: Apache-2.0

package reap

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/gpu-gadgets/gpu-gadgets/internal/ig/mapiter"
)

// idlePasses is the number of passes without a change after which a row may be removed.
const idlePasses = 12

// idler removes rows of running processes that only count, first those that have not
// changed for the longest time. Consumers that sum rows see them restart later.
type idler struct {
	rows   *ebpf.Map
	beside *ebpf.Map // has more about the same rows, by the same key; nil: there is none
	pass   int
	since  map[string]counted // by key
}

type counted struct {
	value string
	pass  int // since when it has not changed
}

// look records which rows have changed since its last call.
func (d *idler) look() error {
	d.pass++
	since := make(map[string]counted, len(d.since))
	err := mapiter.Entries(d.rows, func(key, value []byte) {
		was, ok := d.since[string(key)]
		if !ok || was.value != string(value) {
			was = counted{string(value), d.pass}
		}
		since[string(key)] = was
	})
	if err != nil {
		return fmt.Errorf("read %s: %w", d.rows, err)
	}
	d.since = since
	return nil
}

// forget undoes a look.
func (d *idler) forget() { d.since = nil }

// remove deletes the idlest rows, a quarter of all at most.
func (d *idler) remove() (n int, err error) {
	var idle []string
	for key, c := range d.since {
		if d.pass-c.pass >= idlePasses {
			idle = append(idle, key)
		}
	}
	slices.SortFunc(idle, func(a, b string) int { return cmp.Compare(d.since[a].pass, d.since[b].pass) })
	for _, key := range idle[:min(len(idle), len(d.since)/4)] {
		if _, err := erase(d.rows, []byte(key)); err != nil {
			return n, err
		}
		n++
		if d.beside == nil {
			continue
		}
		if _, err := erase(d.beside, []byte(key)); err != nil {
			return n, err
		}
	}
	return n, nil
}
