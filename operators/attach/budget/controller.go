// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/internal/ig"
	"github.com/gpu-gadgets/gpu-gadgets/internal/tracer"
	"github.com/gpu-gadgets/gpu-gadgets/internal/tracer/traps"
)

const (
	// look is how often costs are read. With windows, a look has some of them.
	look        = 250 * time.Millisecond
	windowsLook = time.Second
	leastLooked = 4
	// hopeful is how long the steps have to bring the cost down.
	hopeful = 10 * time.Second
)

// Settings of a Controller.
type Settings struct {
	Gadget string
	Maps   Maps
	Prober Prober
	Traps  traps.Cost
	// Percent of the CPU time of each thread that calls what is probed.
	Percent float64
	// InWindows has the functions that can be followed a part of the time, by their
	// cookies; none, where that would break what the user requested.
	InWindows map[uint32]bool
	// HasTensors: the gadget follows PyTorch's allocator, which can be switched off.
	HasTensors bool
	// DropTensors removes the state of tensors, which are no longer traced.
	DropTensors func() error
	Info, Warn  func(format string, args ...any)
}

// Controller keeps a budget.
type Controller struct {
	cfg     Settings
	meter   meter
	planner planner
	windows *windows
	tensors tensors
	looked  time.Time
	over    time.Time // since when the budget is exceeded whatever is left out; zero: it is not

	mu    sync.Mutex // guards state
	state State
	said  map[string]bool
}

// State has the decisions of a Controller.
type State struct {
	Slots  uint32  // one in so many is a window; 1: all calls are followed
	Share  float64 // of the CPU time of the thread that pays most, at the last look
	Opened int     // windows so far
	// Scale is what probes take of threads, against what these are charged with.
	Scale float64
	// Factor is by how much more a call in a window counts.
	Factor float64
}

// NewController returns a Controller. Run does the work.
func NewController(cfg Settings) *Controller {
	c := &Controller{cfg: cfg, meter: meter{maps: cfg.Maps}, said: map[string]bool{}, state: State{Slots: 1}}
	c.planner = planner{limit: cfg.Percent / 100, can: cfg.InWindows, now: plan{slots: 1}, scale: 1}
	c.windows = newWindows(cfg.Maps, cfg.Prober)
	c.tensors = tensors{c: c}
	return c
}

// State is the present one.
func (c *Controller) State() State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

// Run returns when the context has ended, with all functions that can be followed
// attached or not as they happen to be; or with an error, and then everything is followed,
// without a budget.
func (c *Controller) Run(ctx context.Context) error {
	defer c.windows.wait()
	err := c.run(ctx)
	if err != nil && ctx.Err() == nil {
		err = errors.Join(err, c.followAll())
	}
	return err
}

// followAll undoes each step: calls that are traced in windows would
// be missing from now on, as none is opened any more.
func (c *Controller) followAll() error {
	err := c.windows.end(c.cfg.InWindows)
	err = errors.Join(err, c.cfg.Maps.endCounting())
	c.tensors.followAll()
	c.mu.Lock()
	c.state.Slots = 1
	c.mu.Unlock()
	return err
}

func (c *Controller) run(ctx context.Context) error {
	if _, err := c.meter.look(time.Now()); err != nil {
		return err
	}
	c.looked = time.Now()
	for ctx.Err() == nil {
		var err error
		if c.windows.plan.slots > 1 {
			if err = c.windows.period(ctx); err == nil && c.isTime(windowsLook) && c.windows.opened >= leastLooked {
				err = c.step(ctx)
			}
		} else if sleepUntil(ctx, ig.SinceBoot()+look) {
			err = c.step(ctx)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *Controller) isTime(d time.Duration) bool { return time.Since(c.looked) >= d }

// step reads the costs and changes what they make necessary.
func (c *Controller) step(ctx context.Context) error {
	c.looked = time.Now()
	s, err := c.meter.look(c.looked)
	if err != nil {
		return err
	}
	c.stacks(s)
	if c.cfg.HasTensors {
		if err := c.tensors.step(s); err != nil {
			return err
		}
	}
	before := c.windows.plan
	c.windows.witness.takeOut(&s)
	if in := c.planner.inWindow(); in > 0 {
		c.planner.rescale(c.windows.loss() / in)
	}
	next := c.planner.see(s)
	c.windows.every = c.windows.witness.every(c.planner.full, c.planner.scale/c.planner.limit)
	c.mu.Lock()
	c.state.Share, c.state.Scale = c.planner.taken(), c.planner.scale
	c.state.Factor = c.windows.factor()
	c.state.Opened += c.windows.opened
	c.mu.Unlock()
	c.windows.opened = 0
	c.windows.pace.look(s)
	if c.windows.plan.slots > 1 {
		if err := c.cfg.Maps.setTraps(c.cfg.Traps, c.windows.doubt(), false); err != nil {
			return err
		}
	}
	if next.slots == before.slots && len(next.apis) == len(before.apis) {
		c.hopeless(s)
		return nil
	}
	if err := c.windows.follow(ctx, next); errors.Is(err, tracer.ErrNoWindows) {
		c.say("windows", c.cfg.Warn, "%s, more than the budget of %g %%: %v; the budget is exceeded", c.takes(s), c.cfg.Percent, err)
		c.planner.can, c.planner.now = nil, plan{slots: 1}
		return nil
	} else if err != nil {
		return err
	}
	if !slices.Equal(next.apis, before.apis) {
		c.windows.witness.choose(next.apis, c.planner.full)
		c.windows.every = weighOften
	}
	c.mu.Lock()
	c.state.Slots = next.slots
	c.mu.Unlock()
	switch {
	case next.slots <= 1:
		c.say("all", c.cfg.Info, "there is room in the budget again: all calls are followed from now on")
	default:
		c.say("windows", c.cfg.Info, "%s, more than the budget of %g %%: from now on the most frequent of them are probed in random windows, now %v in each %v;"+
			" their calls, bytes and times are estimates with a stated error (calls_error, bytes_error, host_ns_error)",
			c.takes(s), c.cfg.Percent, slot, time.Duration(next.slots)*slot)
	}
	c.hopeless(s)
	return nil
}

// stacks says when stacks begin to be sampled, which the programs do by themselves.
func (c *Controller) stacks(s seen) {
	if c.cfg.Maps.Samples == nil {
		return
	}
	var state struct {
		Window, Spent uint64
		Shift, Pad    uint32
	}
	if err := c.cfg.Maps.Samples.Lookup(uint32(0), &state); err == nil && state.Shift > 0 {
		c.say("stacks", c.cfg.Info, "stacks take more than half of the budget of %g %%: from now on they are sampled; sums by line are estimates with a stated error", c.cfg.Percent)
	}
}

// hopeless says when the budget cannot be kept.
func (c *Controller) hopeless(s seen) {
	if !c.planner.cannot || s.worst.Share <= c.planner.limit {
		c.over = time.Time{}
		return
	}
	if c.over.IsZero() {
		c.over = time.Now()
	}
	if time.Since(c.over) > hopeful {
		c.say("cannot", c.cfg.Warn, "%s, and nothing more can be left out: the budget of %g %% is exceeded", c.takes(s), c.cfg.Percent)
	}
}

func (c *Controller) takes(s seen) string {
	return fmt.Sprintf("%s: the probes take %.2g %% of the CPU time of a traced thread (process %d, thread %d)", c.cfg.Gadget, 100*s.worst.Share, s.worst.PID, s.worst.TID)
}

// say logs each step once in a run.
func (c *Controller) say(step string, log func(string, ...any), format string, args ...any) {
	if !c.said[step] {
		c.said[step] = true
		log("budget: "+format, args...)
	}
}
