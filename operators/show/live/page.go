// SPDX-License-Identifier: Apache-2.0

package live

import (
	"fmt"
	"strings"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/internal/format/screen"
	"github.com/gpu-gadgets/gpu-gadgets/internal/format/top"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/operators/decode/drops"
)

// page is the page that the screen shows now; ok is false while it is paused, except for the first page
// then, the first after a key, and the first of another size.
func (s *Screen) page(width, height int) (lines []screen.Line, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isPaused && s.held == [2]int{width, height} {
		return nil, false
	}
	s.held = [2]int{width, height}
	p := screen.Page{Status: s.status(time.Now(), width), Notes: s.notes(), Keys: s.keyLine()}
	switch {
	case s.isHelp:
		for _, text := range top.Help() {
			p.Body = append(p.Body, screen.Text(screen.Plain, text))
		}
	case s.model != nil:
		p.Body, p.Head, p.Foot = s.model.Body(width)
		p.First = s.model.First
		if s.model.Empty() {
			p.Body, p.Head, p.Foot = s.waiting(width), 1, 0
		}
	case s.rankTable != nil && len(s.rankTable.Rows) > 0:
		p.Body, p.Head = s.rankTable.Render(width, 0), 1
	default:
		p.Body = s.waiting(width)
	}
	for n := range s.messages.all {
		m := &s.messages.all[n]
		p.Messages = append(p.Messages, screen.Message{Text: m.line(), Style: m.style})
	}
	return p.Render(width, height), true
}

// noRanks is the end of a run for ranks that had none.
const noRanks = "No rank called NCCL. If a process does nothing for another reason: ig-gpu dump PID --frozen 10s\n" +
	"shows whether it moves, and what it waits for."

// waiting says why there is nothing yet.
func (s *Screen) waiting(width int) (lines []screen.Line) {
	text := "Looking for processes to attach to."
	switch {
	case len(s.attachments.processes) > 0 && s.model == nil:
		text = "Attached; no rank has called NCCL since."
	case len(s.attachments.processes) > 0:
		text = "Attached; the first numbers come in a second."
	case s.attachments.refused != "":
		text = "Nothing could be attached to: " + s.attachments.refused + ". Looking for other processes."
	}
	for _, l := range screen.Wrap(text, width, 2) {
		lines = append(lines, screen.Text(screen.Dim, l))
	}
	return lines
}

// maxShort is how many times the status gives up something for a narrow terminal.
const maxShort = 3

// status is the first line: what is attached, for how long, and what was lost. In a narrow
// terminal it leaves out the other views first, then words.
func (s *Screen) status(now time.Time, width int) screen.Line {
	for short := 0; ; short++ {
		line := s.statusLine(now, false, short)
		if short == maxShort || line.Width() <= width {
			return line
		}
	}
}

func (s *Screen) statusLine(now time.Time, isFinal bool, short int) screen.Line {
	title := s.cfg.Title
	if short > 1 {
		title = title[strings.LastIndexByte(title, ' ')+1:]
	}
	line := screen.Line{{Text: title, Style: screen.Bold}}
	add := func(style screen.Style, text string) {
		line = append(line, screen.Span{Text: "  "}, screen.Span{Text: text, Style: style})
	}
	if s.model != nil && len(s.model.Views) > 1 {
		for _, v := range s.model.Views {
			switch {
			case v == s.model.View:
				add(screen.Reverse, v.String())
			case short == 0:
				add(screen.Dim, v.String())
			}
		}
	}
	switch text := s.attachments.text(); {
	case text != "" && short > 2:
		add(screen.Plain, text)
	case text != "":
		add(screen.Plain, "attached to "+text)
	case !isFinal:
		add(screen.Yellow, "attached to nothing yet")
	case s.attachments.refused != "":
		add(screen.Yellow, "attached to nothing: "+s.attachments.refused)
	}
	took := now.Sub(s.began).Truncate(time.Second)
	switch {
	case isFinal:
		add(screen.Plain, "ran "+took.String())
	case s.isEnding:
		add(screen.Yellow, "ending")
	case !s.until.IsZero():
		add(screen.Plain, fmt.Sprintf("%v left", max(s.until.Sub(now).Round(time.Second), 0)))
	default:
		add(screen.Plain, took.String())
	}
	lost, text := s.lost()
	if lost == 0 {
		add(screen.Plain, "0 lost")
	} else {
		add(screen.Yellow, text)
	}
	if s.isPaused {
		add(screen.Reverse, "paused")
	}
	return line
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// lost is how much of what was to be counted was not, in words.
func (s *Screen) lost() (n uint64, text string) {
	var worst drops.Count
	for _, reasons := range s.drops {
		for _, c := range reasons {
			if c.Count == 0 || drops.IsExpected(c.Reason) {
				continue
			}
			n += c.Count
			if c.Count > worst.Count {
				worst = c
			}
		}
	}
	if n == 0 {
		return 0, ""
	}
	return n, fmt.Sprintf("%d lost: %s", n, drops.Words(worst.Reason).What)
}

// notes are lines below the status: PyTorch's pools, NCCL's largest
// communicators, and since when there is a mark.
func (s *Screen) notes() (notes []screen.Line) {
	if s.model == nil {
		return nil
	}
	for _, p := range s.poolList {
		if s.model.View != top.Memory || len(notes) == 4 {
			break
		}
		notes = append(notes, screen.Text(screen.Plain, fmt.Sprintf("PyTorch's pool of %d on %s: %s reserved, %s in tensors", p.pid,
			top.DeviceName(p.device), profile.FormatBytes(p.reserved), profile.FormatBytes(p.allocated))))
	}
	for n, c := range s.communicatorList {
		if s.model.View != top.Memory || n == 3 {
			break
		}
		notes = append(notes, screen.Text(screen.Plain, fmt.Sprintf("NCCL of %d: %s", c.PID, c)))
	}
	if at, ok := s.model.SinceMark(); ok {
		text := fmt.Sprintf("Mark %d was set at %s; d shows what has changed since.", s.model.Marks, at.Format(time.TimeOnly))
		if s.model.Diff {
			text = fmt.Sprintf("Since mark %d at %s, %v ago:", s.model.Marks, at.Format(time.TimeOnly), time.Since(at).Truncate(time.Second))
		}
		notes = append(notes, screen.Text(screen.Yellow, text))
	}
	return notes
}

// keyLine is the last line.
func (s *Screen) keyLine() screen.Line {
	if s.model == nil {
		return screen.Text(screen.Dim, "keys: p pause, q quit")
	}
	text := fmt.Sprintf("keys: m mark, d since mark, g by %s, t tree, s sort, p pause, ? help, q quit", s.model.By)
	if len(s.model.Views) > 1 {
		text = fmt.Sprintf("keys: Tab view, m mark, d since mark, g by %s, t tree, s sort, ? help, q quit", s.model.By)
	}
	return screen.Text(screen.Dim, text)
}
