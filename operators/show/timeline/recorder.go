// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"

	"github.com/gpu-gadgets/gpu-gadgets/internal/format/file"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/numa"
	"github.com/gpu-gadgets/gpu-gadgets/internal/timeline/columns"
	"github.com/gpu-gadgets/gpu-gadgets/internal/timeline/idle"
	"github.com/gpu-gadgets/gpu-gadgets/internal/timeline/lines"
	"github.com/gpu-gadgets/gpu-gadgets/internal/timeline/page"
	"github.com/gpu-gadgets/gpu-gadgets/internal/timeline/trace"
	"github.com/gpu-gadgets/gpu-gadgets/internal/timeline/track"
	"github.com/gpu-gadgets/gpu-gadgets/internal/timeline/weave"
)

const (
	// windowNS is for how long an event waits for others that ended before it:
	// longer than it takes to read a ring that was full.
	windowNS = 500_000_000
	// maxHeld bounds the window: about 30 MiB.
	maxHeld = 65536

	tool  = "ig-gpu"
	title = "GPU timeline"
)

// logger has the methods of a run's logger that this package needs.
type logger interface {
	Infof(format string, v ...any)
	Warnf(format string, v ...any)
	Errorf(format string, v ...any)
}

// events are written as they are, into JSON lines or, where the name ends in .parquet, as
// rows of a table.
type events interface {
	Call(*weave.Call)
	Host(*weave.Host)
	Kernel(*weave.Kernel)
	Inuse(*weave.Inuse)
	Memory(of *weave.Thread, boot uint64, p numa.Process, nodes map[string]uint64)
	Node(boot uint64, n numa.Node)
	Lines() uint64
	Flush() error
	Close() error
}

func createEvents(path string, offset time.Duration) (events, error) {
	if strings.HasSuffix(path, ".parquet") {
		return columns.Create(path, offset)
	}
	return lines.Create(path, offset)
}

// recorder is the way of events to the files. It is for one goroutine at a time.
type recorder struct {
	merge  *weave.Merge
	weaver *weave.Weaver
	offset time.Duration
	trace  *trace.Writer // nil: not requested
	path   string
	warned bool // that a file cannot be written
	page   *page.Page
	html   *file.File // of the page
	lines  events     // nil: not requested
	ended  bool       // reported that lines cannot be written
	seen   *watched
	gaps   *idle.Gaps // nil: not requested
	places int        // of gaps, that are reported
	lost   map[string]uint64

	kernels kernels
}

// open begins the files, of processes in procfs.
func open(procfs string, values api.ParamValues) (*recorder, error) {
	r := &recorder{path: values[paramTrace], offset: wallOffset(), lost: map[string]uint64{}}
	var sinks track.Sinks
	var err error
	if s := values[paramIdle]; s != "" && s != "0" {
		if r.places, err = strconv.Atoi(s); err != nil || r.places < 0 {
			return nil, fmt.Errorf("--%s: want a number of lines, not %q", paramIdle, s)
		}
		r.gaps = idle.New()
	}
	if path := values[paramPage]; path != "" {
		if r.html, err = file.Prepare(path); err != nil {
			return nil, fmt.Errorf("--%s: %w", paramPage, err)
		}
		r.page = page.New()
		sinks = append(sinks, r.page)
	}
	if path := values[paramEvents]; path != "" {
		if r.lines, err = createEvents(path, r.offset); err != nil {
			r.lines = nil // and not an interface that holds one
			r.discard()
			return nil, fmt.Errorf("--%s: %w", paramEvents, err)
		}
		r.seen = newWatched(procfs)
	}
	if r.path != "" {
		if r.trace, err = trace.Create(r.path, trace.Meta{Tool: tool, WallOffset: r.offset}); err != nil {
			r.discard()
			return nil, fmt.Errorf("--%s: %w", paramTrace, err)
		}
		sinks = append(sinks, r.trace)
	}
	r.weaver = weave.New(sinks)
	r.merge = weave.NewMerge(windowNS, maxHeld, r.draw)
	return r, nil
}

func (r *recorder) draw(event any) {
	switch e := event.(type) {
	case *weave.Call:
		r.weaver.Call(e)
		if r.lines != nil {
			r.lines.Call(e)
			r.seen.see(&e.Thread)
		}
		if r.gaps != nil {
			r.gaps.Call(e)
		}
	case *weave.Inuse:
		r.weaver.Inuse(e)
		if r.lines != nil {
			r.lines.Inuse(e)
		}
	case *weave.Host:
		r.weaver.Host(e)
		if r.lines != nil {
			r.lines.Host(e)
			r.seen.see(&e.Thread)
		}
		if r.gaps != nil && e.Kind == weave.Sample {
			r.gaps.Sample(e)
		}
	}
}

func (r *recorder) call(c *weave.Call) { r.merge.Add(c.End, c) }
func (r *recorder) host(h *weave.Host) { r.merge.Add(h.End, h) }

// drop notes how many events the gadget has lost, by reason.
func (r *recorder) drop(reason string, count uint64) { r.lost[reason] = count }

// tick writes what is old enough, for readers of the file meanwhile and for the
// case that we are killed.
func (r *recorder) tick(now uint64, log logger) {
	r.merge.Until(now - min(now, windowNS))
	r.drawKernels()
	r.weaver.Tick(now - min(now, windowNS))
	if r.lines != nil {
		if err := r.lines.Flush(); err != nil && !r.ended {
			r.ended = true
			log.Errorf("timeline: --%s: %v; the file ends here, the run continues", paramEvents, err)
		}
	}
	if r.trace == nil {
		return
	}
	for reason, n := range r.losses() {
		r.trace.Lost(reason, n)
	}
	if err := r.trace.Flush(); err != nil && !r.warned {
		r.warned = true
		log.Errorf("timeline: --%s: %v; the file ends here, the run continues", paramTrace, err)
	}
}

// remember writes what the memory of processes was.
func (r *recorder) remember(m *reading) {
	for _, process := range m.gone {
		r.seen.forget(process)
	}
	m.write(r.lines)
}

// losses are the missing events, by reason.
func (r *recorder) losses() map[string]uint64 {
	all := maps.Clone(r.lost)
	all["out_of_order"] = r.merge.Late()
	return all
}

// close ends the files.
func (r *recorder) close(log logger) error {
	r.merge.Until(^uint64(0))
	r.drawKernels()
	r.kernels.logCounts(log)
	r.weaver.End()
	r.tick(bootNow(), log)
	if r.gaps != nil {
		r.gaps.End()
		for _, line := range r.gaps.Lines(r.places) {
			log.Infof("%s", line)
		}
	}
	return errors.Join(r.closeTrace(log), r.closePage(), r.closeLines(log))
}

func (r *recorder) closeTrace(log logger) error {
	if r.trace == nil {
		return nil
	}
	err := r.trace.Close()
	if n := r.trace.Unwritten(); n > 0 {
		err = errors.Join(err, fmt.Errorf("%d events are not in %s", n, r.path))
	}
	if err != nil {
		return fmt.Errorf("--%s: %w", paramTrace, err)
	}
	log.Infof("timeline: %s: %d events; open it at https://ui.perfetto.dev or in chrome://tracing", r.path, r.trace.Events())
	return nil
}

func (r *recorder) closeLines(log logger) error {
	if r.lines == nil {
		return nil
	}
	if err := r.lines.Close(); err != nil {
		return fmt.Errorf("--%s: %w", paramEvents, err)
	}
	log.Infof("timeline: %d lines of events", r.lines.Lines())
	return nil
}

func (r *recorder) closePage() error {
	if r.html == nil {
		return nil
	}
	html := r.html
	r.html = nil
	err := html.Commit(func(w io.Writer) error {
		buffered := bufio.NewWriterSize(w, 1<<20)
		if err := r.page.Write(buffered, page.Meta{Title: title, WallOffset: r.offset, Lost: r.losses()}); err != nil {
			return err
		}
		return buffered.Flush()
	})
	if err != nil {
		return fmt.Errorf("--%s: %w", paramPage, err)
	}
	return nil
}

// discard is for a run that did not begin.
func (r *recorder) discard() {
	if r.html != nil {
		r.html.Discard()
		r.html = nil
	}
	if r.lines != nil {
		_ = r.lines.Close()
		r.lines = nil
	}
}
