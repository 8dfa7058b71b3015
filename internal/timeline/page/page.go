// SPDX-License-Identifier: Apache-2.0

// Package page shows a timeline as one HTML file, for a quick look without any site
// (package document). It shows at most maxBars slices of the trace. If there are more,
// neighbours of the same name are merged, with their number, and then the shortest are
// omitted; the page reports both. Its table has all.
package page

import (
	"cmp"
	_ "embed"
	"fmt"
	"slices"

	"github.com/gpu-gadgets/gpu-gadgets/internal/timeline/track"
)

const (
	maxBars   = 200_000
	maxTracks = 2_000
	maxNames  = 20_000 // of slices; further ones are others
	maxTexts  = 100_000
	maxPoints = 20_000 // of one counter
	maxArrows = 20_000
	maxText   = 300 // bytes of a name

	others = "other"
)

var (
	//go:embed body.html
	body string
	//go:embed style.css
	style string
	//go:embed model.js
	model string
	//go:embed view.js
	view string
	//go:embed controls.js
	controls string
)

// bar is a slice as the page shows it, or several of the same name.
type bar struct {
	start, end uint64
	busy       uint64 // of its slices together
	count      uint32
	name       int32 // of texts
	detail     int32 // of texts; 0: none
	category   int16
	depth      int16
}

type row struct {
	track.Track
	name  string
	order int
	bars  []bar
	open  []bar // begun, not ended
}

type counter struct {
	pid    uint32
	name   string
	points []point
}

type point struct {
	at    uint64
	value float64
}

// sum has the totals of all slices of a name, including those without a bar.
type sum struct {
	category int16
	name     int32
	count    uint64
	total    uint64
	longest  uint64
}

type sumKey struct {
	category int16
	name     int32
}

// Page collects a timeline. It is a track.Sink, for one goroutine.
type Page struct {
	processes map[uint32]string
	rows      map[track.Track]*row
	counters  map[string]*counter
	arrows    []track.Arrow
	arrowStep uint64 // one in so many arrows is kept
	arrowSeen uint64 // arrows added in total

	texts      []string
	text       map[string]int32
	categories []string
	category   map[string]int16
	sums       map[sumKey]*sum

	bars    int
	gap     uint64 // ns up to which neighbours are one bar
	slices  uint64 // added in total
	short   uint64 // omitted
	without uint64 // on tracks beyond the limit
	bare    uint64 // without their details, for which there was no room
}

var _ track.Sink = (*Page)(nil)

// New returns an empty page.
func New() *Page {
	p := &Page{
		processes: map[uint32]string{}, rows: map[track.Track]*row{}, counters: map[string]*counter{},
		text: map[string]int32{"": 0, others: 1}, texts: []string{"", others}, category: map[string]int16{},
		sums: map[sumKey]*sum{}, arrowStep: 1, gap: 1000,
	}
	return p
}

// intern returns the number of a text; 0 if there is no room for another one.
func (p *Page) intern(s string) int32 {
	n, ok := p.text[s]
	if !ok {
		if len(p.texts) >= maxTexts {
			return 0
		}
		n = int32(len(p.texts))
		p.text[s] = n
		p.texts = append(p.texts, s)
	}
	return n
}

// detail is intern for what has a number of its own, such as a kernel's: it leaves room for names.
func (p *Page) detail(s string) int32 {
	if _, ok := p.text[s]; !ok && len(p.texts) >= maxTexts-maxNames {
		p.bare++
		return 0
	}
	return p.intern(s)
}

// shorten bounds a text, and cuts it between letters.
func shorten(s string) string {
	if len(s) <= maxText {
		return s
	}
	cut := s[:maxText]
	for len(cut) > 0 && cut[len(cut)-1]&0xc0 == 0x80 {
		cut = cut[:len(cut)-1]
	}
	return cut[:max(len(cut)-1, 0)] + "…"
}

// Process implements track.Sink.
func (p *Page) Process(pid uint32, name string) {
	if _, ok := p.processes[pid]; ok || len(p.processes) < maxTracks {
		p.processes[pid] = shorten(name)
	}
}

// Name implements track.Sink.
func (p *Page) Name(t track.Track, name string, order int) {
	r := p.rows[t]
	if r == nil {
		if len(p.rows) >= maxTracks {
			return
		}
		r = &row{Track: t}
		p.rows[t] = r
	}
	r.name, r.order = shorten(name), order
}

func (p *Page) bar(s track.Slice) bar {
	name := s.Name
	if len(p.sums) >= maxNames {
		if _, ok := p.text[shorten(name)]; !ok {
			name = others
		}
	}
	c, ok := p.category[s.Category]
	if !ok {
		c = int16(len(p.categories))
		p.category[s.Category] = c
		p.categories = append(p.categories, s.Category)
	}
	return bar{start: s.Start, end: s.End, count: 1, name: p.intern(shorten(name)), category: c, detail: p.detail(detail(s.Args))}
}

// detail is the text of a bar besides its name: one line per argument.
func detail(args []track.Arg) string {
	text := ""
	for _, a := range args {
		if a.Key == "stack" {
			continue
		}
		if text != "" {
			text += "\n"
		}
		if a.Text != "" {
			text += a.Key + ": " + shorten(a.Text)
		} else {
			text += fmt.Sprintf("%s: %d", a.Key, a.Number)
		}
	}
	return text
}

// Slice implements track.Sink.
func (p *Page) Slice(t track.Track, s track.Slice) {
	p.slices++
	b := p.bar(s)
	p.count(b)
	r := p.rows[t]
	if r == nil {
		p.without++
		return
	}
	b.depth = int16(min(len(r.open), 200))
	p.put(r, b)
}

// Begin implements track.Sink.
func (p *Page) Begin(t track.Track, s track.Slice) {
	p.slices++
	r := p.rows[t]
	if r == nil {
		p.without++
		return
	}
	b := p.bar(s)
	b.depth = int16(min(len(r.open), 200))
	r.open = append(r.open, b)
}

// End implements track.Sink.
func (p *Page) End(t track.Track, s track.Slice) {
	r := p.rows[t]
	if r == nil || len(r.open) == 0 {
		return
	}
	b := r.open[len(r.open)-1]
	r.open = r.open[:len(r.open)-1]
	b.end = max(s.End, b.start)
	p.count(b)
	p.put(r, b)
}

func (p *Page) count(b bar) {
	key := sumKey{b.category, b.name}
	s := p.sums[key]
	if s == nil {
		s = &sum{category: b.category, name: b.name}
		p.sums[key] = s
	}
	s.count++
	s.total += b.end - b.start
	s.longest = max(s.longest, b.end-b.start)
}

func (p *Page) put(r *row, b bar) {
	b.busy = b.end - b.start
	r.bars = append(r.bars, b)
	if p.bars++; p.bars > maxBars {
		p.thin()
	}
}

// thin makes room: it merges neighbours over increasing gaps, and drops bars shorter than
// such a gap.
func (p *Page) thin() {
	for ; p.bars > maxBars/2; p.gap *= 4 {
		p.bars = 0
		for _, r := range p.rows {
			r.bars = p.join(r.bars)
			p.bars += len(r.bars)
		}
	}
}

func byRow(a, b bar) int {
	return cmp.Or(cmp.Compare(a.depth, b.depth), cmp.Compare(a.start, b.start), cmp.Compare(b.end, a.end))
}

// join works in place.
func (p *Page) join(bars []bar) []bar {
	slices.SortFunc(bars, byRow)
	out := bars[:0]
	for _, b := range bars {
		if n := len(out) - 1; n >= 0 {
			if o := &out[n]; o.depth == b.depth && o.name == b.name && o.category == b.category && b.start <= o.end+p.gap {
				o.end, o.busy, o.count = max(o.end, b.end), o.busy+b.busy, o.count+b.count
				if o.detail != b.detail {
					o.detail = 0
				}
				continue
			}
			// The previous one was not merged, and is too short to be visible.
			if o := out[n]; o.end-o.start < p.gap/64 {
				p.short += uint64(o.count)
				out = out[:n]
			}
		}
		out = append(out, b)
	}
	return slices.Clip(out)
}

// Counter implements track.Sink.
func (p *Page) Counter(pid uint32, name string, ns uint64, value float64) {
	key := fmt.Sprintf("%d/%s", pid, name)
	c := p.counters[key]
	if c == nil {
		if len(p.counters) >= maxTracks {
			return
		}
		c = &counter{pid: pid, name: shorten(name)}
		p.counters[key] = c
	}
	c.points = append(c.points, point{ns, value})
	if len(c.points) > maxPoints {
		// Of two, keep the higher: peaks matter most.
		kept := c.points[:0]
		for n := 0; n+1 < len(c.points); n += 2 {
			a, b := c.points[n], c.points[n+1]
			kept = append(kept, point{a.at, max(a.value, b.value)})
		}
		c.points = append(kept, c.points[len(c.points)-1])
	}
}

// Arrow implements track.Sink.
func (p *Page) Arrow(a track.Arrow) {
	if p.arrowSeen++; p.arrowSeen%p.arrowStep != 0 {
		return
	}
	p.arrows = append(p.arrows, a)
	if len(p.arrows) > maxArrows {
		kept := p.arrows[:0]
		for n := 0; n < len(p.arrows); n += 2 {
			kept = append(kept, p.arrows[n])
		}
		p.arrows = kept
		p.arrowStep *= 2
	}
}

// Stack implements track.Sink: bars have their innermost frame.
func (*Page) Stack(uint64, []string) {}
