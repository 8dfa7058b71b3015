// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"errors"
	"fmt"
	"time"
)

const (
	torchLibrary = "libc10"
	// grace is how long sampling of tensors' stacks has to bring the cost down.
	grace = 3 * time.Second
	// trialEvery is how often it is measured what following tensors would cost, by
	// counting what the allocator reports for trial.
	trialEvery = 30 * time.Second
	trial      = 100 * time.Millisecond
	// trials in a row have to be below the hysteresis.
	trials = 3
)

// tensors switches PyTorch's allocator off where its reports alone, which no sampling
// saves, are more than the budget; and on again. Tensors cannot be followed a part of the
// time: a block that is freed unseen would be in use for ever.
type tensors struct {
	c      *Controller
	over   time.Duration // how long the budget was exceeded
	isOff  bool
	rested time.Duration
	calm   int
	each   float64 // ns of a report, when they were followed last
}

func (t *tensors) step(s seen) error {
	if t.isOff {
		t.rested += time.Duration(s.seconds * float64(time.Second))
		if t.rested < trialEvery {
			return nil
		}
		t.rested = 0
		return t.try()
	}
	if s.hits[reports] > 0 {
		t.each = s.ns[reports] / s.hits[reports]
	}
	if s.total == 0 || s.worst.Share <= t.c.planner.limit || s.ns[reports] < s.total/3 {
		t.over = 0
		return nil
	}
	t.over += time.Duration(s.seconds * float64(time.Second))
	if t.over < grace {
		return nil
	}
	t.over, t.isOff, t.rested, t.calm = 0, true, 0, 0
	t.c.cfg.Prober.SetAttached(torchLibrary, false)
	t.c.say("tensors", t.c.cfg.Info, "%s, more than the budget of %g %%: from now on tensors are not traced, and their rows end; allocations by the driver stay exact", t.c.takes(s), t.c.cfg.Percent)
	return t.c.cfg.DropTensors()
}

// try counts the reports of a moment.
func (t *tensors) try() error {
	c := t.c
	if err := c.cfg.Maps.setTraps(c.cfg.Traps, 0, true); err != nil {
		return err
	}
	c.cfg.Prober.SetAttached(torchLibrary, true)
	_, err := c.meter.look(time.Now())
	time.Sleep(trial)
	s, e := c.meter.look(time.Now())
	if err = errors.Join(err, e); err != nil {
		return fmt.Errorf("measure PyTorch's allocator: %w", err)
	}
	// Counting costs less than following: as much more as it did.
	share := s.worst.Share
	if s.total > 0 && s.hits[reports] > 0 {
		others := s.total - s.ns[reports]
		share *= (others + s.hits[reports]*t.each) / s.total
	}
	if share > hysteresis*c.planner.limit {
		t.calm = 0
	} else if t.calm++; t.calm >= trials {
		t.isOff = false
		if err := c.cfg.Maps.setTraps(c.cfg.Traps, 0, false); err != nil {
			return err
		}
		c.say("tensors again", c.cfg.Info, "there is room in the budget again: tensors are followed from now on")
		return nil
	}
	c.cfg.Prober.SetAttached(torchLibrary, false)
	return nil
}

// followAll follows tensors again, whatever that costs.
func (t *tensors) followAll() {
	if t.isOff {
		t.isOff = false
		t.c.cfg.Prober.SetAttached(torchLibrary, true)
	}
}
