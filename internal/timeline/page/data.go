// SPDX-License-Identifier: Apache-2.0

package page

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/internal/format/document"
	"github.com/gpu-gadgets/gpu-gadgets/internal/timeline/track"
)

// Meta describes the page.
type Meta struct {
	Title      string
	WallOffset time.Duration // see trace.Meta
	Lost       map[string]uint64
}

// Write writes the page. The same timeline gives the same bytes.
func (p *Page) Write(w io.Writer, m Meta) error {
	err := document.Write(w, document.Page{
		Title: m.Title, Body: body, Style: style, Scripts: []string{model, view, controls}, Data: p.encode(m),
	})
	if err != nil {
		return fmt.Errorf("write the timeline's page: %w", err)
	}
	return nil
}

// data is the input of the script, read by model.js. Times are ns after start.
type data struct {
	Title string `json:"title"`
	// Start is boot time, Wall the offset to ns since 1970: too long for a double.
	Start      string    `json:"start"`
	Wall       string    `json:"wall"`
	Length     uint64    `json:"length"`
	Texts      []string  `json:"texts"`
	Categories []string  `json:"categories"`
	Processes  []process `json:"processes"`
	// Arrows are (track, time, track, time) one after the other; tracks are counted
	// over all processes.
	Arrows []int64 `json:"arrows"`
	// Sums are (category, name, count, total, longest) one after the other.
	Sums   []uint64          `json:"sums"`
	Lost   map[string]uint64 `json:"lost"`
	Slices uint64            `json:"slices"`
	Short  uint64            `json:"short"`
	Left   uint64            `json:"left"`
	Bare   uint64            `json:"bare"`
}

type process struct {
	Name     string        `json:"name"`
	Tracks   []trackData   `json:"tracks"`
	Counters []counterData `json:"counters"`
}

type trackData struct {
	Name string `json:"name"`
	// Bars are (depth, start less that of the bar before, duration, busy, count, name,
	// category, detail) one after the other, by depth and start.
	Bars []int64 `json:"bars"`
}

type counterData struct {
	Name string `json:"name"`
	// Points are (time, value) one after the other.
	Points []float64 `json:"points"`
}

func (p *Page) encode(m Meta) data {
	d := data{
		Title: m.Title, Wall: fmt.Sprint(int64(m.WallOffset)), Texts: p.texts, Categories: p.categories,
		Processes: []process{}, Arrows: []int64{}, Sums: []uint64{}, Lost: map[string]uint64{},
		Slices: p.slices, Short: p.short, Left: p.without, Bare: p.bare,
	}
	for reason, n := range m.Lost {
		if n > 0 {
			d.Lost[reason] = n
		}
	}
	start, end := p.extent()
	d.Start, d.Length = fmt.Sprint(start), end-start

	number := p.encodeProcesses(&d, start)
	p.encodeArrows(&d, number, start)
	p.encodeSums(&d)
	return d
}

// encodeProcesses adds the tracks and counters of each process, by pid. It returns the
// numbers of the tracks, as arrows have them.
func (p *Page) encodeProcesses(d *data, start uint64) map[track.Track]int64 {
	rows := slices.SortedFunc(maps.Values(p.rows), func(a, b *row) int {
		return cmp.Or(cmp.Compare(a.PID, b.PID), cmp.Compare(a.order, b.order), cmp.Compare(a.ID, b.ID))
	})
	counters := slices.SortedFunc(maps.Values(p.counters), func(a, b *counter) int {
		return cmp.Or(cmp.Compare(a.pid, b.pid), cmp.Compare(a.name, b.name))
	})
	number := map[track.Track]int64{}
	for _, pid := range slices.Sorted(maps.Keys(p.processes)) {
		out := process{Name: p.processes[pid], Tracks: []trackData{}, Counters: []counterData{}}
		for _, r := range rows {
			if r.PID == pid && len(r.bars) > 0 {
				number[r.Track] = int64(len(number))
				out.Tracks = append(out.Tracks, trackData{r.name, p.flat(r, start)})
			}
		}
		for _, c := range counters {
			if c.pid == pid {
				v := counterData{Name: c.name}
				for _, at := range c.points {
					v.Points = append(v.Points, float64(at.at-min(at.at, start)), at.value)
				}
				out.Counters = append(out.Counters, v)
			}
		}
		if len(out.Tracks)+len(out.Counters) > 0 {
			d.Processes = append(d.Processes, out)
		}
	}
	return number
}

// encodeArrows adds the arrows whose tracks are both in the page.
func (p *Page) encodeArrows(d *data, number map[track.Track]int64, start uint64) {
	for _, a := range p.arrows {
		from, ok := number[a.From]
		to, ok2 := number[a.To]
		if ok && ok2 {
			d.Arrows = append(d.Arrows, from, int64(a.FromNS-start), to, int64(a.ToNS-start))
		}
	}
}

// encodeSums adds the totals of the slices of each name, the longest time first.
func (p *Page) encodeSums(d *data) {
	for _, s := range slices.SortedFunc(maps.Values(p.sums), func(a, b *sum) int {
		return cmp.Or(cmp.Compare(b.total, a.total), cmp.Compare(b.count, a.count), cmp.Compare(a.name, b.name), cmp.Compare(a.category, b.category))
	}) {
		d.Sums = append(d.Sums, uint64(s.category), uint64(s.name), s.count, s.total, s.longest)
	}
}

func (p *Page) flat(r *row, start uint64) []int64 {
	slices.SortFunc(r.bars, byRow)
	out := make([]int64, 0, 8*len(r.bars))
	last := start
	for _, b := range r.bars {
		out = append(out, int64(b.depth), int64(b.start)-int64(last), int64(b.end-b.start), int64(b.busy),
			int64(b.count), int64(b.name), int64(b.category), int64(b.detail))
		last = b.start
	}
	return out
}

// extent is from the first slice to the end of the last one.
func (p *Page) extent() (start, end uint64) {
	start = ^uint64(0)
	for _, r := range p.rows {
		for _, b := range r.bars {
			start, end = min(start, b.start), max(end, b.end)
		}
	}
	if start > end {
		return 0, 0
	}
	return start, end
}
