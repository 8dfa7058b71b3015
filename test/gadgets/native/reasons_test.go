// SPDX-License-Identifier: Apache-2.0

package native

import (
	"runtime"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/simulated"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/tracer"
)

// reasons are the names of drops by the flag of a stack.
var reasons = map[stack.Flags]string{
	stack.NativeNoRules:    "native_no_rules",
	stack.NativeNotLoaded:  "native_not_loaded",
	stack.NativeTruncated:  "native_truncated",
	stack.NativeBroken:     "native_broken",
	stack.NativeUnreadable: "native_unreadable",
	stack.NativeBusy:       "native_busy",
}

// A stack that is cut says why, and each reason is counted.
func TestEachReasonIsInTheStackAndCounted(t *testing.T) {
	const each = 300
	driver := simulated.DriverCopy(t)
	program := build(t, "cuts.cpp", "-O2", "-fomit-frame-pointer")
	tr, _ := start(t, driver, memory)
	for how, c := range map[string]struct {
		why    stack.Flags
		frames int // that are known all the same
	}{
		"bare":       {stack.NativeNoRules, 3},
		"mistaken":   {stack.NativeBroken, 3},
		"deep":       {stack.NativeTruncated, 64},
		"unreadable": {stack.NativeUnreadable, 3},
		"busy":       {stack.NativeBusy, 0},
		"pointing":   {stack.NativeBroken, 3},
		"signalled":  {stack.NativeTruncated, 64},
		"":           {0, 0},
	} {
		t.Run(how, func(t *testing.T) {
			if (how == "pointing" || how == "signalled") && runtime.GOARCH != "amd64" {
				t.Skip("written for x86-64")
			}
			before := tr.Drops()
			calls := each
			if how == "busy" { // few of them come at a bad moment
				calls *= 20
			}
			p := run(t, program, driver, how, strconv.Itoa(calls))
			p.goOn(t)
			cut := map[string]uint64{}
			why, whole := uint64(0), uint64(0)
			for _, row := range tr.RowsOf(p.Process.Pid) {
				if int(row.PID) != p.Process.Pid || row.Kind == tracer.KindContext {
					continue
				}
				flags := stack.Flags(row.Flags) & (stack.NativeTruncated | stack.NativeNoRules | stack.NativeNotLoaded |
					stack.NativeBroken | stack.NativeUnreadable | stack.NativeBusy)
				if flags == 0 {
					whole += row.AllocObjects
					continue
				}
				require.Contains(t, reasons, flags, "one reason")
				cut[reasons[flags]] += row.AllocObjects
				if flags != c.why {
					continue
				}
				why += row.AllocObjects
				if c.frames > 0 {
					assert.Len(t, row.Native, c.frames, "a stack is cut where it cannot be walked any further")
				}
			}
			t.Logf("%d complete, cut: %v", whole, cut)
			counted := tr.Drops()
			for _, reason := range reasons { // that of the context's row, too
				assert.GreaterOrEqual(t, counted[reason]-before[reason], cut[reason], reason)
				assert.LessOrEqual(t, counted[reason]-before[reason], cut[reason]+1, reason)
			}
			switch c.why {
			case 0:
				assert.Greater(t, whole, uint64(calls/2))
			case stack.NativeBusy:
				assert.NotZero(t, why)
			default:
				assert.Greater(t, why, uint64(calls/2))
			}
		})
	}
}

// Without rules, callers are found by frame pointers, and each address must be one in code. While another thread changes the
// mappings, the kernel does not answer.
func TestChainsAreCompleteWhileMappingsChange(t *testing.T) {
	driver := simulated.DriverCopy(t)
	program := build(t, "chains.cpp", "-O2", "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls")
	tr := tracer.Start(t, driver, tracer.Options{})
	p := run(t, program, driver)
	p.goOn(t)
	byLength, calls := map[int]uint64{}, uint64(0)
	for _, row := range tr.RowsOf(p.Process.Pid) {
		if row.Kind != tracer.KindContext {
			calls += row.AllocObjects
			byLength[len(row.Native)] += row.AllocObjects
		}
	}
	t.Logf("calls by their frames: %v", byLength)
	require.EqualValues(t, 2001, calls)
	require.Len(t, byLength, 2, "that of main, and those of all others")
	require.Empty(t, tr.Drops())
}
