// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"github.com/gpu-gadgets/gpu-gadgets/internal/ig"
	"github.com/gpu-gadgets/gpu-gadgets/internal/tracer"
)

const varStarted = "gpu-gadgets.attach.started"

// OnStart has f called with the tracer of a run once it has attached to what is mapped. It must
// be called before Start, by one operator.
func OnStart(gc ig.Context, f func(*tracer.Tracer)) { gc.SetVar(varStarted, f) }

func started(gc ig.Context, t *tracer.Tracer) {
	v, _ := gc.GetVar(varStarted)
	if f, ok := v.(func(*tracer.Tracer)); ok {
		f(t)
	}
}
