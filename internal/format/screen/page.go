// SPDX-License-Identifier: Apache-2.0

package screen

import "fmt"

// Page is a whole screen. From top to bottom: the status, the notes, the body, and at the
// bottom the messages and the keys. A repaint with other rows leaves the messages where
// they are.
type Page struct {
	Status Line
	Notes  []Line
	// Body is the table: its first Head lines and its last Foot lines are always shown,
	// of those between as many as fit, from First on.
	Body              []Line
	Head, Foot, First int
	// Messages are the oldest first; of long ones all is shown, of many the newest.
	Messages []Message
	Keys     Line
}

// Message is a verdict, a refusal or a warning.
type Message struct {
	Text  string
	Style Style
}

// maxShare is which part of the screen messages may take.
const maxShare = 2

// Render is exactly height lines of at most width columns.
func (p Page) Render(width, height int) []Line {
	width, height = max(width, 1), max(height, 1)
	out := []Line{p.Status.clip(width)}
	for _, n := range p.Notes {
		if len(out) < height-4 {
			out = append(out, n.clip(width))
		}
	}
	messages := p.messages(width, height/maxShare)
	room := height - len(out) - len(messages) - 1
	for _, l := range p.body(max(room, 0)) {
		out = append(out, l.clip(width))
	}
	for len(out) < height-len(messages)-1 {
		out = append(out, nil)
	}
	out = append(out, messages...)
	out = append(out, p.Keys.clip(width))
	if len(out) > height {
		out = out[:height]
	}
	return out
}

// body is the part of the table that fits.
func (p Page) body(room int) []Line {
	if len(p.Body) <= room {
		return p.Body
	}
	head, foot := min(p.Head, len(p.Body)), min(p.Foot, len(p.Body))
	rows := p.Body[head : len(p.Body)-foot]
	n := room - head - foot - 1 // a line has the number of those that are left out
	if n < 1 {
		return p.Body[:min(room, len(p.Body))]
	}
	first := min(max(p.First, 0), max(len(rows)-n, 0))
	out := append([]Line{}, p.Body[:head]...)
	out = append(out, rows[first:min(first+n, len(rows))]...)
	if more := len(rows) - n - first; first > 0 || more > 0 {
		text := fmt.Sprintf("… %d more", more)
		if first > 0 {
			text = fmt.Sprintf("… %d above, %d below", first, more)
		}
		out = append(out, Text(Dim, text))
	}
	return append(out, p.Body[len(p.Body)-foot:]...)
}

// messages are wrapped, the newest last; older ones give way when there are too many lines.
func (p Page) messages(width, limit int) []Line {
	var lines []Line
	left := 0
	for n := len(p.Messages) - 1; n >= 0; n-- {
		m := p.Messages[n]
		var wrapped []Line
		for _, text := range Wrap(m.Text, width, 2) {
			wrapped = append(wrapped, Text(m.Style, text))
		}
		if len(lines)+len(wrapped) > limit-2 && len(lines) > 0 {
			left = n + 1
			break
		}
		lines = append(wrapped, lines...)
	}
	if len(lines) == 0 {
		return nil
	}
	title := "─── messages "
	if left > 0 {
		title = fmt.Sprintf("─── messages (%d older ones are shown at the end) ", left)
	}
	if left == 1 {
		title = "─── messages (1 older one is shown at the end) "
	}
	lines = append([]Line{Text(Dim, title)}, lines...)
	if over := len(lines) - max(limit, 3); over > 0 {
		lines = lines[:len(lines)-over]
	}
	return lines
}
