// SPDX-License-Identifier: Apache-2.0

package live

import (
	"fmt"
	"slices"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/internal/format/screen"
	"github.com/gpu-gadgets/gpu-gadgets/internal/throttle"
)

// maxMessages bounds what is remembered of what processes can cause.
const maxMessages = 200

// message is a verdict, a refusal or a warning. One with the same key replaces the earlier
// one, and counts it if it is counted.
type message struct {
	kind    string // what it is about
	of      string // the process or communicator that it is about; "": this program
	key     string
	at      time.Time
	text    string
	style   screen.Style
	counted bool
	count   int
	isLog   bool
}

func (m *message) line() string {
	times := ""
	if m.count > 1 {
		times = fmt.Sprintf(" (%d times)", m.count)
	}
	return m.at.Format(time.TimeOnly) + " " + m.text + times
}

// messages are the newest ones. The zero value is ready.
type messages struct {
	all     []message
	dropped int // for those that came later
	printed throttle.Allowance
	muted   int // came faster than they may be printed
}

// take adds a message, or replaces an earlier one, and reports whether it is the first of its key.
func (s *messages) take(m message) (isFirst bool) {
	at := slices.IndexFunc(s.all, func(o message) bool { return o.key == m.key })
	switch {
	case at >= 0 && m.counted:
		m.count = s.all[at].count + 1
		s.all = append(slices.Delete(s.all, at, at+1), m)
	case at >= 0:
		s.all[at] = m
	default:
		if len(s.all) >= maxMessages {
			s.dropOne()
		}
		s.all = append(s.all, m)
	}
	return at < 0
}

// dropOne makes room: of the kind that there is most of, the oldest message of the process that has
// most of them goes.
func (s *messages) dropOne() {
	kind := mostFrequent(s.all, func(m *message) (string, bool) { return m.kind, true })
	of := mostFrequent(s.all, func(m *message) (string, bool) { return m.of, m.kind == kind })
	at := slices.IndexFunc(s.all, func(m message) bool { return m.kind == kind && m.of == of })
	s.all = slices.Delete(s.all, at, at+1)
	s.dropped++
}

// mostFrequent is the value that most messages have; of several, the one that was there first.
func mostFrequent(all []message, value func(*message) (v string, ok bool)) (most string) {
	counts := map[string]int{}
	for n := range all {
		if v, ok := value(&all[n]); ok {
			counts[v]++
		}
	}
	best := 0
	for n := range all {
		if v, ok := value(&all[n]); ok && counts[v] > best {
			most, best = v, counts[v]
		}
	}
	return most
}

// mayPrint reports whether a message may be printed. A verdict always may, and what this program says itself;
// of what processes cause at will, maxMessages at once and one each second in the long run.
func (s *messages) mayPrint(m *message) bool {
	if !m.counted || m.of == "" {
		return true
	}
	s.printed.Burst, s.printed.Share = (maxMessages-1)*time.Second, 1
	if s.printed.Pause(m.at) > 0 {
		s.muted++
		return false
	}
	s.printed.Take(time.Second, m.at)
	return true
}

// message shows one, and where there is no screen prints it at once, the first of its key.
func (s *Screen) message(m message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m.at, m.count = time.Now(), 1
	isFirst := s.messages.take(m)
	if !s.interactive && (isFirst || !m.counted) && !m.isLog && s.messages.mayPrint(&m) {
		s.print(m.line() + "\n")
	}
	s.changed()
}
