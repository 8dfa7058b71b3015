// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"sync"
	"time"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/params"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/runtime"
)

// running is a runtime that knows the gadgets that it runs. Inspektor Gadget's
// manager of instances can cancel one, but not wait for it.
type running struct {
	runtime.Runtime

	mu       sync.Mutex
	ending   bool
	contexts map[runtime.GadgetContext]bool
	wait     sync.WaitGroup
}

// RunGadget runs a gadget until its context ends.
func (r *running) RunGadget(gc runtime.GadgetContext, global *params.Params, values api.ParamValues) error {
	r.mu.Lock()
	if r.ending {
		r.mu.Unlock()
		return errors.New("the daemon is ending")
	}
	r.contexts[gc] = true
	r.wait.Add(1)
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		delete(r.contexts, gc)
		r.mu.Unlock()
		r.wait.Done()
	}()
	return r.Runtime.RunGadget(gc, global, values)
}

// stop ends all gadgets and reports whether they ended within limit. No new ones start.
func (r *running) stop(limit time.Duration) bool {
	r.mu.Lock()
	r.ending = true
	for gc := range r.contexts {
		gc.Cancel()
	}
	r.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		r.wait.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return true
	case <-time.After(limit):
		return false
	}
}
