// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"testing"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/test/bpftest"
	"github.com/cilium/ebpf"
)

// TestVerifierCost keeps the unwinder cheap to load: three programs carry it.
func TestVerifierCost(t *testing.T) {
	bpftest.RequireRoot(t)
	spec := bpftest.Spec(t, "testdata/unwind.bpf.c")
	for name := range spec.Programs {
		one := spec.Copy()
		for other := range one.Programs {
			if other != name {
				delete(one.Programs, other)
			}
		}
		start := time.Now()
		coll := bpftest.LoadSpec(t, one)
		took := time.Since(start)
		info, err := coll.Programs[name].Info()
		if err != nil {
			t.Fatal(err)
		}
		verified, _ := info.VerifiedInstructions()
		size, _ := info.TranslatedSize()
		t.Logf("%s: %d instructions, %d verified, loaded in %v", name, size/8, verified, took)
		_ = ebpf.ProgramID(0)
	}
}
