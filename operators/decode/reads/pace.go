// SPDX-License-Identifier: Apache-2.0

package reads

import (
	"time"

	"golang.org/x/sys/unix"
)

// A table is read once a second, which takes longer the more rows it has, and a tenant can fill it.
// Inspektor Gadget reads a source's rows again once they have passed all subscribers, so the last
// one waits.

const (
	// share is the part of one processor that the rows of a source may take: one in so many.
	share = 20
	// longest is how old rows can become at most, whatever they cost.
	longest = 10 * time.Second
	// ignored is a pause that the interval of a second has anyway: half of it, for rows may be read
	// more often.
	ignored = 500 * time.Millisecond
)

// wait returns after a pause, or when the run ends.
func (i *instance) wait(pause time.Duration) {
	if pause <= ignored {
		return
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-i.ended:
	}
}

// moment is one of the clock, and the process's processor time up to it.
type moment struct {
	wall time.Time
	used time.Duration
}

func now() moment {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return moment{wall: time.Now()}
	}
	return moment{time.Now(), time.Duration(u.Utime.Nano() + u.Stime.Nano())}
}

// pace is that of one source, whose rows one goroutine reads.
type pace struct {
	began    moment
	cost     time.Duration
	reported bool
}

func (p *pace) begin(at moment) { p.began = at }

// end returns how long to wait before rows are read again, and whether it is the first time that
// this is longer than the interval.
//
// The cost of rows is the processor time of the process, in which others work, too, but never more
// than the time by the clock: a busy machine makes no rows expensive.
func (p *pace) end(at moment) (pause time.Duration, isNew bool) {
	p.cost = min(at.wall.Sub(p.began.wall), at.used-p.began.used)
	pause = min(p.cost*(share-1), longest)
	isNew = pause > time.Second && !p.reported
	p.reported = p.reported || isNew
	return pause, isNew
}
