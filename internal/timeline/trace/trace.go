// SPDX-License-Identifier: Apache-2.0

// Package trace writes a timeline as Chrome's trace JSON, compressed and streamed: memory
// is bounded by one block of text, and the file can be opened at any time, also after a
// kill or on a full disk (see file). Perfetto (https://ui.perfetto.dev) and
// chrome://tracing open it.
//
// The format is that of "Trace Event Format" (Google, 2016): an object with
// "traceEvents". Times are microseconds, with three digits behind the point, of
// CLOCK_BOOTTIME, as the kernel gave them: nothing is subtracted, so other data of the
// same machine can be joined. "metadata" has the clock, the offset to wall time, and the
// losses. A call has "boot_ns", its start as an integer, for programs that read the file.
//
// A Writer is for one goroutine.
package trace

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/internal/timeline/track"
)

// Meta describes the file.
type Meta struct {
	// Tool is the writer's name and version.
	Tool string
	// WallOffset is wall time (since 1970) less boot time, at the start.
	WallOffset time.Duration
}

// Writer is a track.Sink that writes a file.
type Writer struct {
	file *file
	meta Meta
	text []byte // not compressed yet
	end  []byte

	events  uint64 // written or in text
	pending uint64 // of them, in text
	lost    uint64
	counts  map[string]uint64
}

var _ track.Sink = (*Writer)(nil)

// Create begins the file at path. An error means that it cannot be written.
func Create(path string, meta Meta) (*Writer, error) {
	f, err := create(path)
	if err != nil {
		return nil, err
	}
	w := &Writer{file: f, meta: meta, counts: map[string]uint64{}}
	w.text = append(w.text, `{"displayTimeUnit":"ns","traceEvents":[`+"\n"...)
	w.text = append(w.text, `{"ph":"M","pid":0,"name":"clock","args":{"name":"CLOCK_BOOTTIME"}}`...)
	if err := w.Flush(); err != nil {
		return nil, errors.Join(err, f.to.Close())
	}
	return w, nil
}

// Lost records events that were lost earlier, by reason; n is the total so far.
func (w *Writer) Lost(reason string, n uint64) { w.counts[reason] = n }

// Events is the number of events written, Unwritten of those that could not be: after an
// error they are only counted.
func (w *Writer) Events() uint64    { return w.events }
func (w *Writer) Unwritten() uint64 { return w.lost }

// Flush writes all events so far to the file. After the first error it always returns
// that error.
func (w *Writer) Flush() error {
	if len(w.text) == 0 {
		return w.file.failed
	}
	text, events := w.text, w.pending
	w.text, w.pending = w.text[:0], 0
	err := w.file.add(text, w.closing(false))
	if err != nil {
		w.events -= events
		w.lost += events
	}
	return err
}

// Close ends the file.
func (w *Writer) Close() error {
	err := w.Flush()
	return errors.Join(w.file.close(w.closing(true)), dropSame(err, w.file.failed))
}

// dropSame keeps an error from being reported twice.
func dropSame(err, reported error) error {
	if errors.Is(err, reported) {
		return nil
	}
	return err
}

// closing is the end of the JSON.
func (w *Writer) closing(complete bool) []byte {
	b := append(w.end[:0], "\n],\"metadata\":{\"clock\":\"CLOCK_BOOTTIME\",\"unit\":\"us\",\"wall_offset_ns\":"...)
	b = strconv.AppendInt(b, int64(w.meta.WallOffset), 10)
	b = append(b, `,"tool":`...)
	b = appendText(b, w.meta.Tool)
	b = append(b, `,"complete":`...)
	b = strconv.AppendBool(b, complete)
	b = append(b, `,"events":`...)
	b = strconv.AppendUint(b, w.events, 10)
	b = append(b, `,"lost":{`...)
	first := true
	for _, reason := range slices.Sorted(maps.Keys(w.counts)) {
		if n := w.counts[reason]; n != 0 && len(b) < maxClosing {
			if !first {
				b = append(b, ',')
			}
			first = false
			b = appendText(b, reason)
			b = append(b, ':')
			b = strconv.AppendUint(b, n, 10)
		}
	}
	w.end = append(b, "}}}\n"...)
	return w.end
}

// maxClosing keeps the closing text within one stored block of 64 KiB.
const maxClosing = 60 << 10

// begin opens an event, and writes the buffer if it is full.
func (w *Writer) begin(phase byte) bool {
	if w.file.failed != nil {
		w.lost++
		return false
	}
	if len(w.text) > blockBytes && w.Flush() != nil {
		w.lost++
		return false
	}
	w.events++
	w.pending++
	w.text = append(w.text, ",\n{\"ph\":\""...)
	w.text = append(w.text, phase, '"')
	return true
}

func (w *Writer) number(key string, n uint64) {
	w.text = append(w.text, key...)
	w.text = strconv.AppendUint(w.text, n, 10)
}

func (w *Writer) at(t track.Track, ns uint64) {
	w.number(`,"pid":`, uint64(t.PID))
	w.number(`,"tid":`, uint64(t.ID))
	w.text = append(w.text, `,"ts":`...)
	w.text = appendMicroseconds(w.text, ns)
}

func (w *Writer) name(name string) {
	w.text = append(w.text, `,"name":`...)
	w.text = appendText(w.text, name)
}

func (w *Writer) args(args []track.Arg, start uint64) {
	if len(args) == 0 && start == 0 {
		return
	}
	w.text = append(w.text, `,"args":{`...)
	if start != 0 {
		w.number(`"boot_ns":`, start)
	}
	for i, a := range args {
		if i > 0 || start != 0 {
			w.text = append(w.text, ',')
		}
		w.text = appendText(w.text, a.Key)
		w.text = append(w.text, ':')
		if a.Text != "" {
			w.text = appendText(w.text, a.Text)
		} else {
			w.text = strconv.AppendInt(w.text, a.Number, 10)
		}
	}
	w.text = append(w.text, '}')
}

// metadata names a process or a track.
func (w *Writer) metadata(what string, t track.Track, key string, value func()) {
	if !w.begin('M') {
		return
	}
	w.number(`,"pid":`, uint64(t.PID))
	if t.ID != 0 {
		w.number(`,"tid":`, uint64(t.ID))
	}
	w.name(what)
	w.text = append(w.text, `,"args":{"`+key+`":`...)
	value()
	w.text = append(w.text, "}}"...)
}

// Process implements track.Sink.
func (w *Writer) Process(pid uint32, name string) {
	w.metadata("process_name", track.Track{PID: pid}, "name", func() { w.text = appendText(w.text, name) })
}

// Name implements track.Sink.
func (w *Writer) Name(t track.Track, name string, order int) {
	w.metadata("thread_name", t, "name", func() { w.text = appendText(w.text, name) })
	w.metadata("thread_sort_index", t, "sort_index", func() { w.text = strconv.AppendInt(w.text, int64(order), 10) })
}

// Slice implements track.Sink.
func (w *Writer) Slice(t track.Track, s track.Slice) {
	if !w.begin('X') {
		return
	}
	w.at(t, s.Start)
	w.text = append(w.text, `,"dur":`...)
	w.text = appendMicroseconds(w.text, s.End-min(s.Start, s.End))
	w.name(s.Name)
	w.category(s.Category)
	w.args(s.Args, s.Start)
	w.text = append(w.text, '}')
}

func (w *Writer) category(c string) {
	w.text = append(w.text, `,"cat":`...)
	w.text = appendText(w.text, c)
}

// Begin implements track.Sink.
func (w *Writer) Begin(t track.Track, s track.Slice) {
	if !w.begin('B') {
		return
	}
	w.at(t, s.Start)
	w.name(s.Name)
	w.category(s.Category)
	w.args(s.Args, 0)
	w.text = append(w.text, '}')
}

// End implements track.Sink. The format and Perfetto need no name and category here;
// Chrome's Performance panel refuses a file in which they are not those of the beginning.
func (w *Writer) End(t track.Track, s track.Slice) {
	if w.begin('E') {
		w.at(t, s.End)
		w.name(s.Name)
		w.category(s.Category)
		w.text = append(w.text, '}')
	}
}

// Counter implements track.Sink.
func (w *Writer) Counter(pid uint32, name string, ns uint64, value float64) {
	if !w.begin('C') {
		return
	}
	w.number(`,"pid":`, uint64(pid))
	w.text = append(w.text, `,"ts":`...)
	w.text = appendMicroseconds(w.text, ns)
	w.name(name)
	w.text = append(w.text, `,"args":{"value":`...)
	w.text = strconv.AppendFloat(w.text, value, 'g', -1, 64)
	w.text = append(w.text, "}}"...)
}

// Arrow implements track.Sink.
func (w *Writer) Arrow(a track.Arrow) {
	for _, end := range []struct {
		phase byte
		on    track.Track
		at    uint64
		more  string
	}{{'s', a.From, a.FromNS, ""}, {'f', a.To, a.ToNS, `,"bp":"e"`}} {
		if !w.begin(end.phase) {
			return
		}
		w.at(end.on, end.at)
		w.number(`,"id":`, a.ID)
		w.name(a.Name)
		w.category("arrow")
		w.text = append(w.text, end.more...)
		w.text = append(w.text, '}')
	}
}

// Stack implements track.Sink: frames by the number that slices have.
func (w *Writer) Stack(id uint64, frames []string) {
	w.metadata("stack", track.Track{}, "stack", func() {
		w.number("", id)
		w.text = append(w.text, `,"frames":[`...)
		for i, f := range frames {
			if i > 0 {
				w.text = append(w.text, ',')
			}
			w.text = appendText(w.text, f)
		}
		w.text = append(w.text, ']')
	})
}

// String describes the state of the file, for a log.
func (w *Writer) String() string { return fmt.Sprintf("%d events, %d not written", w.events, w.lost) }
