// SPDX-License-Identifier: Apache-2.0

package live

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hinshun/vt10x"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gpu-gadgets/gpu-gadgets/internal/format/screen"
	"github.com/gpu-gadgets/gpu-gadgets/internal/format/top"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
	"github.com/gpu-gadgets/gpu-gadgets/operators/decode/drops"
)

// terminal is a console whose output an emulator reads.
type terminal struct {
	mu        sync.Mutex
	emulator  vt10x.Terminal
	raw       strings.Builder
	elsewhere bool
	err       error // of writing
	key       func(byte)
	entered   int
	restored  int
}

func newTerminal() *terminal { return &terminal{emulator: vt10x.New(vt10x.WithSize(80, 24))} }

func (c *terminal) IsInteractive() bool { return !c.elsewhere }
func (c *terminal) HasColour() bool     { return true }
func (c *terminal) Enter()              { c.entered++ }
func (c *terminal) Restore()            { c.restored++ }
func (c *terminal) Read(on func(byte))  { c.key = on }

func (c *terminal) Divert(func(bool, string)) func() { return func() {} }

func (c *terminal) Size() (int, int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.emulator.Size()
}

func (c *terminal) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return 0, c.err
	}
	c.raw.Write(b)
	return c.emulator.Write(b)
}

func (c *terminal) text() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.emulator.String()
}

func (c *terminal) wait(t *testing.T, text string) {
	t.Helper()
	require.Eventually(t, func() bool { return strings.Contains(c.text(), text) }, time.Minute, 10*time.Millisecond, "%s in\n%s", text, c.text())
}

func row(line string, bytes int64) top.Row {
	return top.Row{Row: profile.Row{Process: profile.Process{ID: 1, PID: 7, Comm: "python3"}, Kind: "device",
		Stack:  stack.Stack{{Kind: stack.KindPython, Function: line, File: "/a/m.py", Line: 3}},
		Values: profile.Values{AllocBytes: bytes, AllocObjects: 1, InuseBytes: bytes, InuseObjects: 1, PeakBytes: bytes}}}
}

// TestARepaintDoesNotEraseAMessage: verdicts stay while rows change.
func TestARepaintDoesNotEraseAMessage(t *testing.T) {
	c := newTerminal()
	s := NewScreen(ScreenConfig{Console: c, Title: "cuda_alloc", Views: []top.View{top.Memory}})
	s.begin(run{cancel: func() {}})
	s.message(message{key: "oom", text: "out of memory: python3[7] was refused 2.00 GiB", style: screen.Red, counted: true})
	for n := range 40 {
		s.rows(profile.Memory, time.Now(), []top.Row{row(fmt.Sprintf("f%d", n), int64(n+1)<<20)})
	}
	c.wait(t, "f39 (m.py:3)")
	require.Contains(t, c.text(), "was refused 2.00 GiB")
	s.message(message{key: "oom", text: "out of memory: python3[7] was refused 3.00 GiB", style: screen.Red, counted: true})
	c.wait(t, "was refused 3.00 GiB (2 times)")
	require.NotContains(t, c.text(), "2.00 GiB")
	require.NoError(t, s.Close())
	require.Equal(t, 1, c.restored)
	require.Contains(t, c.text(), "ran 0s")
}

// TestWhereNobodySeesTheScreenOneTableIsWritten, without a sequence.
func TestWhereNobodySeesTheScreenOneTableIsWritten(t *testing.T) {
	c := newTerminal()
	c.elsewhere = true
	s := NewScreen(ScreenConfig{Console: c, Title: "cuda_alloc", Views: []top.View{top.Memory}, Limit: 1})
	s.begin(run{cancel: func() {}})
	for range 3 {
		s.rows(profile.Memory, time.Now(), []top.Row{row("f", 2<<20), row("g", 1<<20)})
	}
	s.attached(attachment{pid: 7, functions: 53, status: "attached", path: "/libcuda.so.1"})
	s.dropped("source", drops.Count{Reason: "stacks_full", Count: 3})
	s.dropped("source", drops.Count{Reason: "process_unreadable", Count: 9})
	require.NoError(t, s.Close())
	require.Zero(t, c.entered)
	require.NotContains(t, c.raw.String(), "\033")
	require.Equal(t, strings.Trim(`
  IN-USE  OBJECTS     ALLOC      PEAK    SHARE  KIND    DEVICE  LINE
2.00 MiB        1  2.00 MiB  2.00 MiB   66.7 %  device  GPU 0   f (m.py:3)
… 1 more rows
3.00 MiB        2  3.00 MiB  3.00 MiB  100.0 %                  total
cuda_alloc  attached to 1 process, 53 functions  ran 0s  3 lost: calls whose stack did not fit in the table
`, "\n")+"\n", c.raw.String())
}

// TestARunWithoutRanksNamesWhatElseToLookAt.
func TestARunWithoutRanksNamesWhatElseToLookAt(t *testing.T) {
	c := newTerminal()
	c.elsewhere = true
	s := NewScreen(ScreenConfig{Console: c, Title: "ig-gpu hangs"})
	s.begin(run{cancel: func() {}})
	require.NoError(t, s.Close())
	require.Contains(t, c.raw.String(), "No rank called NCCL. If a process does nothing for another reason: ig-gpu dump PID --frozen 10s\n")
}

func TestATableThatCannotBePrintedIsAnError(t *testing.T) {
	for _, c := range []struct {
		verdict, table, want error // of writing, and of Close
	}{
		{nil, unix.ENOSPC, unix.ENOSPC},
		{unix.ENOSPC, nil, unix.ENOSPC}, // there is room again
		{unix.EPIPE, unix.EPIPE, nil},   // head has read enough
		{nil, nil, nil},
	} {
		console := newTerminal()
		console.elsewhere = true
		s := NewScreen(ScreenConfig{Console: console, Title: "ig-gpu hangs"})
		s.begin(run{cancel: func() {}})
		console.err = c.verdict
		s.message(message{key: "hang", text: "rank 1 is missing"})
		console.err = c.table
		require.ErrorIs(t, s.Close(), c.want)
	}
}

func TestKeysAreReadFromSequencesToo(t *testing.T) {
	var d decoder
	var got []string
	for _, b := range []byte("m\t\033[A\033OB\033[5~\033[1;5Cx\033q\033[99999999999999~j") {
		if key := d.next(b); key != "" {
			got = append(got, key)
		}
	}
	require.Equal(t, []string{"m", top.Tab, top.Up, top.Down, top.PageUp, "x", "q"}, got[:7])
	require.Equal(t, "j", got[len(got)-1])
}

// TestAPanicLeavesTheTerminalAsItWas.
func TestAPanicLeavesTheTerminalAsItWas(t *testing.T) {
	c := newTerminal()
	p := &painter{console: c, page: func(int, int) ([]screen.Line, bool) { panic("page") }}
	require.Panics(t, func() { p.guarded() })
	require.Equal(t, 1, c.restored)
}

func TestQuitEndsTheRuns(t *testing.T) {
	c := newTerminal()
	s := NewScreen(ScreenConfig{Console: c, Title: "t", Views: []top.View{top.Memory, top.Waits}, OnView: nil})
	ended := 0
	s.begin(run{cancel: func() { ended++ }})
	s.begin(run{cancel: func() { ended++ }})
	c.key('q')
	require.Equal(t, 2, ended)
	c.wait(t, "ending")
	s.Abandon()
	require.NoError(t, s.Close())
	require.Equal(t, 1, c.restored)
}
