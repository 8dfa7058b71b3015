// SPDX-License-Identifier: Apache-2.0

package bpftest

import (
	"bytes"
	"fmt"
	"io"
	"sync"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/gpu-gadgets/gpu-gadgets/internal/ig/mapiter"
)

// taken holds, for each collection that LoadSpec loaded on a kernel that refuses map
// iterators, the programs that it removed.
var taken sync.Map

// Iterator reads the rows of a map, as often as it is opened, until it is closed.
type Iterator interface {
	Open() (io.ReadCloser, error)
	Close() error
}

// Iterate attaches a program of section iter/bpf_map_elem to a map of its collection; where
// the kernel refuses such programs, it is run in user space.
func Iterate(t testing.TB, coll *ebpf.Collection, program, mapName string) Iterator {
	t.Helper()
	if programs, ok := taken.Load(coll); ok {
		p := programs.(mapiter.Programs)[program]
		if p == nil || coll.Maps[mapName] == nil {
			t.Fatalf("no program %s, or no map %s", program, mapName)
		}
		return &userIterator{p, mapName, coll.Maps}
	}
	iter, err := link.AttachIter(link.IterOptions{Program: coll.Programs[program], Map: coll.Maps[mapName]})
	if err != nil {
		t.Fatalf("attach %s to %s: %v", program, mapName, err)
	}
	return iter
}

type userIterator struct {
	program *mapiter.Program
	name    string
	maps    map[string]*ebpf.Map
}

func (i *userIterator) Close() error { return nil }

func (i *userIterator) Open() (io.ReadCloser, error) {
	rows, err := i.program.Rows(i.maps[i.name], func(name string) (*ebpf.Map, error) {
		if m := i.maps[name]; m != nil {
			return m, nil
		}
		return nil, fmt.Errorf("the collection has no map %s", name)
	}, mapiter.Entries)
	return io.NopCloser(bytes.NewReader(rows)), err
}

// RequireMapIterators skips a test of programs that only the kernel can run, such as those of
// an unmodified ig.
func RequireMapIterators(t testing.TB) {
	t.Helper()
	if mapiter.Refused() {
		t.Skip("this kernel refuses programs of section iter/bpf_map_elem, which Inspektor Gadget's own operators need")
	}
}
