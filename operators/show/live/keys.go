// SPDX-License-Identifier: Apache-2.0

package live

import (
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/internal/format/top"
)

// decoder makes keys of bytes: arrows and others come as escape sequences (ECMA-48 §5.4,
// and SS3 where a terminal is in application mode).
type decoder struct{ pending []byte }

// maxSequence is longer than any that is known here.
const maxSequence = 8

var sequences = map[string]string{
	"\033[A": top.Up, "\033[B": top.Down, "\033[C": top.Right, "\033[D": top.Left, "\033[5~": top.PageUp, "\033[6~": top.PageDown, "\033[H": top.Home,
	"\033OA": top.Up, "\033OB": top.Down, "\033OC": top.Right, "\033OD": top.Left, "\033OH": top.Home, "\033[1~": top.Home,
}

// next takes one byte, and gives the key that it completes, or "".
func (d *decoder) next(b byte) string {
	switch {
	case b == '\033':
		d.pending = []byte{b}
		return ""
	case len(d.pending) == 0:
		if b == '\t' {
			return top.Tab
		}
		return string(rune(b))
	}
	d.pending = append(d.pending, b)
	if key := sequences[string(d.pending)]; key != "" {
		d.pending = nil
		return key
	}
	// A sequence ends with a letter or with ~; the second byte is [ or O.
	isFirst := len(d.pending) == 2
	if isFirst && b != '[' && b != 'O' {
		d.pending = nil
		return string(rune(b)) // Escape alone, and then a key
	}
	if !isFirst && b >= 0x40 && b <= 0x7e || len(d.pending) > maxSequence {
		d.pending = nil
	}
	return ""
}

// key does what a key stands for. Marks are set without the screen's lock: who writes one logs, which is shown on the screen.
func (s *Screen) key(b byte) {
	for _, mark := range s.press(b) {
		mark()
	}
}

// press returns the marks that are to be set.
func (s *Screen) press(b byte) (marks []func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := s.keys.next(b)
	if key == "" || s.isClosed {
		return nil
	}
	s.held = [2]int{}
	switch {
	case key == "q":
		s.isEnding = true
		for _, r := range s.runs {
			r.cancel()
		}
	case key == "?":
		s.isHelp = !s.isHelp
	case key == "p", key == " ":
		s.isPaused = !s.isPaused
	case s.model == nil:
	case key == "m":
		s.model.Mark(time.Now())
		for _, r := range s.runs {
			if r.mark != nil {
				marks = append(marks, r.mark)
			}
		}
	default:
		before := s.model.View
		s.model.Key(key)
		if s.model.View != before && s.cfg.OnView != nil {
			s.cfg.OnView(s.model.View)
		}
		s.isHelp = false
	}
	s.changed()
	return marks
}
