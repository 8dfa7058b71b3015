// SPDX-License-Identifier: Apache-2.0

package sink

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
	"golang.org/x/sys/unix"

	"github.com/gpu-gadgets/gpu-gadgets/operators/sink/file"
	"github.com/gpu-gadgets/gpu-gadgets/operators/sink/pprof"
)

// marks writes a profile each time that the user says so: what `ig-gpu diff` compares.
type marks struct {
	path    string
	count   int
	asked   int // signals that came since the last rows
	due     int // those that came before: rows that come now were read after them
	signals chan os.Signal
	done    chan struct{}
}

// startMarks listens for SIGUSR1, and for the time of --mark-every.
func (i *instance) startMarks(gc operators.GadgetContext) {
	m := &marks{path: i.values[paramMark], signals: make(chan os.Signal, 8), done: make(chan struct{})}
	if m.path == "" {
		return
	}
	i.marks = m
	signal.Notify(m.signals, unix.SIGUSR1)
	var every <-chan time.Time
	stop := func() {}
	if d, err := time.ParseDuration(i.values[paramEvery]); err == nil {
		ticker := time.NewTicker(d)
		every, stop = ticker.C, ticker.Stop
	}
	go func() {
		defer stop()
		for {
			select {
			case <-m.done:
				return
			case <-m.signals:
			case <-every:
			}
			i.mu.Lock()
			m.asked++
			i.mu.Unlock()
		}
	}()
	gc.Logger().Infof("sink: kill -USR1 %d sets a mark: %s.1.pb.gz, .2 and so on", os.Getpid(), m.path)
}

// stopMarks is called with i.mu held.
func (i *instance) stopMarks() {
	if i.marks == nil {
		return
	}
	signal.Stop(i.marks.signals)
	close(i.marks.done)
	i.marks = nil
}

// mark writes the profiles that were asked for before these rows were read: at the
// second rows that come, since the first may have been read already. It is called with
// i.mu held.
func (i *instance) mark(gc operators.GadgetContext) {
	m := i.marks
	if m == nil {
		return
	}
	defer func() { m.due, m.asked = m.asked, 0 }()
	for ; m.due > 0; m.due-- {
		m.count++
		path := fmt.Sprintf("%s.%d.pb.gz", m.path, m.count)
		err := i.writeMark(path)
		if err != nil {
			gc.Logger().Errorf("sink: --%s: %v", paramMark, err)
			continue
		}
		gc.Logger().Infof("sink: mark %d at %s: %s", m.count, i.recorder.at.Format(time.TimeOnly), path)
	}
}

func (i *instance) writeMark(path string) error {
	p := i.recorder.profile()
	p.Subject, p.Period = i.subject, i.period
	o, err := file.Prepare(path)
	if err != nil {
		return err
	}
	if err := o.Commit(func(w io.Writer) error { return pprof.Encode(w, p) }); err != nil {
		o.Discard()
		return err
	}
	return nil
}
