// SPDX-License-Identifier: Apache-2.0

package live

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
	"golang.org/x/sys/unix"

	"github.com/gpu-gadgets/gpu-gadgets/internal/format/screen"
	"github.com/gpu-gadgets/gpu-gadgets/internal/format/top"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/operators/decode/drops"
)

// Console is the terminal at which the program was started.
type Console interface {
	io.Writer
	// IsInteractive: the user sees the output there, and its keys are for us.
	IsInteractive() bool
	// HasColour: the user did not ask to leave colours out.
	HasColour() bool
	// Size is the number of columns and of lines; 0 where it is not known.
	Size() (columns, lines int)
	// Enter turns to a screen of its own, until Restore.
	Enter()
	// Read calls on with each key, until Restore.
	Read(on func(key byte))
	// Restore leaves the terminal as it was. It may be called again.
	Restore()
	// Divert gives what the program logs to a function, until the one that it returns is
	// called.
	Divert(to func(isWarning bool, text string)) (end func())
}

// ScreenConfig of a screen.
type ScreenConfig struct {
	Console Console
	// Title is shown first: the gadget, or the command.
	Title string
	By    top.By
	// Views can be chosen; none: there are no rows with stacks, but perhaps ranks.
	Views []top.View
	// Limit is the number of rows of the table that stays when the run has ended.
	Limit int
	// Timeout of the run; 0: there is none, or that of the gadget's context is meant.
	Timeout time.Duration
	// OnView is called when a view is chosen: what it needs may be started then.
	OnView func(top.View)
}

// Screen collects what gadgets have found and shows it. It is safe for concurrent use.
type Screen struct {
	cfg     ScreenConfig
	began   time.Time
	painter *painter
	endLogs func()

	mu               sync.Mutex
	model            *top.Model // nil: no rows with stacks
	rankTable        *screen.Table
	messages         messages
	attachments      attachments
	drops            map[any]map[string]drops.Count // by data source
	poolList         []pool
	communicatorList []profile.CommunicatorMemory
	runs             []run
	until            time.Time
	isEnding         bool
	isPaused         bool
	held             [2]int // size of the last page; 0 after a key
	isHelp           bool
	isClosed         bool
	failed           error // the first one of writing, where there is no screen, or at the end
	interactive      bool
	keys             decoder
}

// run is one gadget of the screen.
type run struct {
	gc     operators.GadgetContext
	cancel func()
	mark   func() // nil: marks are not written to files
}

type pool struct {
	pid                 int64
	device              int32
	allocated, reserved int64
}

// NewScreen makes a screen that shows nothing until a run begins.
func NewScreen(cfg ScreenConfig) *Screen {
	s := &Screen{cfg: cfg, drops: map[any]map[string]drops.Count{}}
	if len(cfg.Views) > 0 {
		s.model = top.New(cfg.By, cfg.Views...)
	}
	return s
}

// begin shows the screen with the first run.
func (s *Screen) begin(r run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runs = append(s.runs, r)
	if len(s.runs) > 1 || s.isClosed {
		return
	}
	s.began = time.Now()
	timeout := s.cfg.Timeout
	if t, ok := r.gc.(interface{ Timeout() time.Duration }); ok && timeout == 0 {
		timeout = t.Timeout()
	}
	if timeout > 0 {
		s.until = s.began.Add(timeout)
	}
	s.interactive = s.cfg.Console.IsInteractive()
	if !s.interactive {
		return
	}
	s.endLogs = s.cfg.Console.Divert(s.logged)
	s.cfg.Console.Enter()
	s.painter = newPainter(s.cfg.Console, s.page)
	s.cfg.Console.Read(s.key)
}

// logged takes a line of the program's log while the screen is shown.
func (s *Screen) logged(isWarning bool, text string) {
	style := screen.Plain
	if isWarning {
		style = screen.Yellow
	}
	s.message(message{kind: "log", key: "log " + text, text: screen.Clean(text), style: style, counted: true, isLog: true})
}

// Warn shows a warning.
func (s *Screen) Warn(text string) {
	s.message(message{kind: "warning", key: "warn " + text, text: screen.Clean(text), style: screen.Yellow, counted: true})
}

func (s *Screen) rows(subject profile.Subject, at time.Time, rows []top.Row) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.model != nil {
		s.model.Update(subject, at, rows)
	}
	s.changed()
}

func (s *Screen) ranks(t screen.Table) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rankTable = &t
	s.changed()
}

func (s *Screen) pools(all []pool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.poolList = all
}

// hasPool reports whether PyTorch's pool of a process was seen.
func (s *Screen) hasPool(pid uint32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.poolList, func(p pool) bool { return p.pid == int64(pid) })
}

func (s *Screen) communicators(all []profile.CommunicatorMemory) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.communicatorList = all
}

func (s *Screen) dropped(source any, c drops.Count) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.drops[source] == nil {
		s.drops[source] = map[string]drops.Count{}
	}
	s.drops[source][c.Reason] = c
}

func (s *Screen) ending() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.isEnding = true
	s.changed()
}

// changed has the screen repainted; called with s.mu held, or before it is shown.
func (s *Screen) changed() {
	if s.painter != nil {
		s.painter.wake()
	}
}

// Abandon leaves the terminal as it was, without a table: nothing was run.
func (s *Screen) Abandon() {
	s.mu.Lock()
	wasClosed := s.isClosed
	s.isClosed = true
	s.mu.Unlock()
	if !wasClosed {
		s.leave()
	}
}

// Close leaves the terminal as it was, and the table on it. An error says that a text could
// not be printed, as on a full disk; that the reader of a pipe has ended is none.
func (s *Screen) Close() error {
	s.mu.Lock()
	wasClosed := s.isClosed
	s.isClosed = true
	s.mu.Unlock()
	if wasClosed {
		return nil
	}
	s.leave()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.print(s.final())
	if s.failed != nil {
		return fmt.Errorf("print the table: %w", s.failed)
	}
	return nil
}

// print writes what stays, and keeps the first error. Called with s.mu held.
func (s *Screen) print(text string) {
	if _, err := io.WriteString(s.cfg.Console, text); err != nil && s.failed == nil && !errors.Is(err, unix.EPIPE) {
		s.failed = err
	}
}

func (s *Screen) leave() {
	s.mu.Lock()
	p, endLogs := s.painter, s.endLogs
	s.painter, s.endLogs = nil, nil
	s.mu.Unlock()
	if p != nil {
		p.stop()
		s.cfg.Console.Restore()
	}
	if endLogs != nil {
		endLogs()
	}
}

// maxWidth of a table that no terminal limits.
const maxWidth = 1 << 12

// final is the text that stays: what was attached, the table, and what was logged meanwhile.
func (s *Screen) final() string {
	width, _ := s.cfg.Console.Size()
	if width == 0 {
		width = maxWidth
	}
	colour := s.interactive && s.cfg.Console.HasColour()
	var out strings.Builder
	put := func(lines ...screen.Line) {
		for _, l := range lines {
			out.WriteString(l.Paint(colour) + "\n")
		}
	}
	if s.model != nil {
		table := s.model.Table()
		if s.model.Tree {
			table = s.model.TreeTable()
		}
		lines := table.Render(width, s.cfg.Limit)
		if hidden := len(table.Rows) - s.cfg.Limit; s.cfg.Limit > 0 && hidden > 0 {
			at := len(lines) - len(table.Totals)
			lines = slices.Insert(lines, at, screen.Text(screen.Plain, fmt.Sprintf("… %d more rows", hidden)))
		}
		if len(table.Rows) == 0 {
			lines, _, _ = s.model.Body(width)
		}
		put(lines...)
	}
	if s.rankTable != nil && len(s.rankTable.Rows) > 0 {
		put(s.rankTable.Render(width, s.cfg.Limit)...)
	} else if s.model == nil {
		put(screen.Text(screen.Plain, noRanks))
	}
	left, why := s.messages.muted, "printed: they came too fast"
	if s.interactive {
		left, why = s.messages.dropped, "kept"
		for n := range s.messages.all {
			put(screen.Text(s.messages.all[n].style, s.messages.all[n].line()))
		}
	}
	if left > 0 {
		put(screen.Text(screen.Yellow, fmt.Sprintf("%d more messages were not %s", left, why)))
	}
	put(s.statusLine(time.Now(), true, 0))
	return out.String()
}
