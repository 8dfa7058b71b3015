// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
)

// Runner runs another gadget inside of a run until ctx has ended, on the processes and
// containers that the run is about, with these variables in its context. A server that runs gadgets
// puts it into a gadget's context under VarRunner, where --beside is possible.
type Runner func(ctx context.Context, gadget string, vars map[string]any) error

const (
	// VarRunner names a variable of a gadget's context.
	VarRunner = "gpu-gadgets.timeline.runner"
	// varHost is the *guest of a gadget that is run inside.
	varHost = "gpu-gadgets.timeline.host"

	paramBeside = "beside"
)

// besides are the gadgets that a timeline can show together.
var besides = []string{"cuda_alloc", "cuda_kernel", "nccl_trace"}

// session has the state that the gadgets of one timeline share.
type session struct {
	mu  sync.Mutex // callbacks are concurrent
	rec *recorder  // nil: not begun, or over
}

// guest is one gadget beside the requested one.
type guest struct {
	name    string
	session *session
	once    sync.Once
	ready   chan struct{} // closed when it sends events
	ended   chan struct{} // closed when err is there
	err     error
}

func (g *guest) isReady() { g.once.Do(func() { close(g.ready) }) }

// guests are those of a run.
type guests struct {
	all    []*guest
	cancel context.CancelFunc
}

// parseBeside reads the list of --beside for a gadget.
func parseBeside(s, gadget string) ([]string, error) {
	if s == "" {
		return nil, nil
	}
	var out []string
	for name := range strings.SplitSeq(s, ",") {
		switch name = strings.TrimSpace(name); {
		case !slices.Contains(besides, name):
			return nil, fmt.Errorf("--%s: %q is none of %s", paramBeside, name, strings.Join(besides, ", "))
		case name == gadget:
			return nil, fmt.Errorf("--%s: %s is run already", paramBeside, name)
		}
		out = append(out, name)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// startGuests returns when all of them send events. An error means that none is left.
func startGuests(gc operators.GadgetContext, s *session, names []string) (*guests, error) {
	if len(names) == 0 {
		return nil, nil
	}
	value, _ := gc.GetVar(VarRunner)
	run, ok := value.(Runner)
	if !ok {
		return nil, fmt.Errorf("--%s: only ig-gpu run can run additional gadgets", paramBeside)
	}
	// They end when we stop them: after the last of our own events.
	ctx, cancel := context.WithCancel(context.WithoutCancel(gc.Context()))
	all := &guests{cancel: cancel}
	for _, name := range names {
		g := &guest{name: name, session: s, ready: make(chan struct{}), ended: make(chan struct{})}
		all.all = append(all.all, g)
		go func() {
			defer close(g.ended)
			g.err = run(ctx, g.name, map[string]any{varHost: g})
			select {
			case <-g.ready:
				if g.err != nil && ctx.Err() == nil {
					gc.Logger().Errorf("timeline: %s has ended: %v; the run continues", g.name, g.err)
				}
			default:
			}
		}()
	}
	for _, g := range all.all {
		if err := g.begun(gc.Context()); err != nil {
			all.stop()
			return nil, fmt.Errorf("--%s %s: %w", paramBeside, g.name, err)
		}
	}
	return all, nil
}

// begun waits until the gadget sends events.
func (g *guest) begun(ctx context.Context) error {
	select {
	case <-g.ready:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-g.ended:
		if g.err == nil {
			return errors.New("the gadget ended before it started")
		}
		return g.err
	}
}

// stop ends all, after their events so far have been written. It may be called twice.
func (g *guests) stop() {
	if g == nil {
		return
	}
	g.cancel()
	for _, one := range g.all {
		<-one.ended
	}
}
