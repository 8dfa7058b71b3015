// SPDX-License-Identifier: Apache-2.0

package live

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/internal/format/screen"
)

// tick is how often the painter looks whether the terminal has another size, and whether
// there is something new. It bounds how often a screen is painted, too.
const tick = 100 * time.Millisecond

// painter writes a page to the terminal: of what is there already, only lines that differ.
type painter struct {
	console Console
	page    func(width, height int) ([]screen.Line, bool)
	news    chan struct{}
	ended   chan struct{}
	done    sync.WaitGroup
	// what is on the screen
	shown         []string
	width, height int
}

// newPainter begins to paint, until stop.
func newPainter(console Console, page func(width, height int) ([]screen.Line, bool)) *painter {
	p := &painter{console: console, page: page, news: make(chan struct{}, 1), ended: make(chan struct{})}
	p.done.Go(p.guarded)
	return p
}

// guarded is run. A program that panics must not leave the terminal as a program with a
// screen has it; the panic continues.
func (p *painter) guarded() {
	defer func() {
		if cause := recover(); cause != nil {
			p.console.Restore()
			panic(cause)
		}
	}()
	p.run()
}

// wake has the page painted soon.
func (p *painter) wake() {
	select {
	case p.news <- struct{}{}:
	default: // it will be
	}
}

func (p *painter) stop() {
	close(p.ended)
	p.done.Wait()
}

func (p *painter) run() {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	p.paint()
	painted := time.Now()
	for {
		select {
		case <-p.ended:
			return
		case <-ticker.C:
		}
		isNew := false
		select {
		case <-p.news:
			isNew = true
		default:
		}
		width, height := p.size()
		// The seconds of the status line continue where nothing else happens.
		if isNew || width != p.width || height != p.height || time.Since(painted) >= time.Second {
			p.paint()
			painted = time.Now()
		}
	}
}

// size of the terminal; of one that does not report it, the size that all had.
func (p *painter) size() (width, height int) {
	width, height = p.console.Size()
	if width <= 0 || height <= 0 {
		return 80, 24
	}
	return width, height
}

// paint writes the lines that have changed; after another size, all of them. ECMA-48: CUP
// moves the cursor, EL and ED erase.
func (p *painter) paint() {
	width, height := p.size()
	lines, ok := p.page(width, height)
	if !ok && width == p.width && height == p.height {
		return
	}
	var out strings.Builder
	if width != p.width || height != p.height {
		out.WriteString("\033[H\033[2J")
		p.shown = nil
		p.width, p.height = width, height
	}
	colour := p.console.HasColour()
	for n, line := range lines {
		text := line.Paint(colour)
		if n < len(p.shown) && p.shown[n] == text {
			continue
		}
		// Erased before it is written: behind a line as wide as the terminal the cursor is still
		// on its last character.
		fmt.Fprintf(&out, "\033[%d;1H\033[K%s", n+1, text)
	}
	if ok {
		p.shown = p.shown[:0]
		for _, line := range lines {
			p.shown = append(p.shown, line.Paint(colour))
		}
	}
	if out.Len() > 0 {
		_, _ = p.console.Write([]byte(out.String())) // a terminal that is gone sends SIGHUP
	}
}
