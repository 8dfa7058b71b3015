// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"context"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/ig"
	"github.com/gpu-gadgets/gpu-gadgets/internal/tracer/unwinder"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/bpftest"
)

// rulesVariable, set to anything, has all tests walk native stacks by unwind information, as
// --native-stacks all does.
const rulesVariable = "UNWIND"

// HasRules reports whether they do. The first stacks with some code are cut then, and are other stacks than
// the next ones.
func HasRules() bool { return os.Getenv(rulesVariable) != "" }

// loadWithRules loads a gadget, by rules only if the environment asks for them.
func loadWithRules(t testing.TB, spec *Spec, o Options) *Tracer {
	t.Helper()
	hasRules := HasRules() && !o.Linux510 && !o.Stock && spec.Variables[unwinder.OnConstant] != nil
	if hasRules {
		AllowRules(t, spec, 64<<20)
	}
	tr := &Tracer{Collection: bpftest.LoadSpec(t, spec), t: t}
	if hasRules {
		tr.LoadRules()
	}
	return tr
}

// AllowRules switches the walk by unwind information on, before a gadget is loaded.
func AllowRules(t testing.TB, spec *Spec, memory int64) {
	t.Helper()
	require.NoError(t, spec.Variables[unwinder.OnConstant].Set(unwinder.All))
	require.NoError(t, spec.Variables[unwinder.PageShiftConstant].Set(ig.PageShift()))
	unwinder.Enlarge(spec.Maps, memory)
}

// LoadRules reads the unwind information that stacks meet, until the end of the test.
func (tr *Tracer) LoadRules() *unwinder.Unwinder {
	tr.t.Helper()
	u, err := unwinder.New(unwinder.Config{
		Pages: tr.Maps[unwinder.PagesMap], Asked: tr.Maps[unwinder.AskedMap], Misses: tr.Maps[unwinder.MissesMap],
	})
	require.NoError(tr.t, err)
	require.NoError(tr.t, u.Start(context.Background()))
	tr.t.Cleanup(u.Stop)
	return u
}

// isOfFirstStacks: rules are loaded meanwhile, and mappings are made.
func isOfFirstStacks(reason string) bool {
	return reason == "native_not_loaded" || reason == "native_busy"
}
