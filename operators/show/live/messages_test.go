// SPDX-License-Identifier: Apache-2.0

package live

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/format/screen"
)

func refusal(pid, place int) message {
	return message{kind: "refusal", of: fmt.Sprint(pid), key: fmt.Sprint("oom ", pid, place), text: fmt.Sprintf("out of memory: [%d] at %d", pid, place),
		style: screen.Red, counted: true}
}

func verdict(n int) message {
	return message{kind: "verdict", of: "communicator", key: fmt.Sprint("hang ", n), text: fmt.Sprintf("hang %d", n), style: screen.Red}
}

// TestTheNewestVerdictIsPrintedHoweverManyCameBefore, where there is no terminal.
func TestTheNewestVerdictIsPrintedHoweverManyCameBefore(t *testing.T) {
	c := newTerminal()
	c.elsewhere = true
	s := NewScreen(ScreenConfig{Console: c, Title: "ig-gpu hangs"})
	s.begin(run{cancel: func() {}})
	const many = 2*maxMessages + 1
	for n := range many {
		s.message(verdict(n))
	}
	s.Close()
	for n := range many {
		require.Contains(t, c.raw.String(), fmt.Sprintf("hang %d\n", n))
	}
	require.NotContains(t, c.raw.String(), "more messages")
	require.LessOrEqual(t, len(s.messages.all), maxMessages)
}

// TestRefusalsWithoutEndArePrintedSlowly: the disk is the user's, and verdicts are printed meanwhile.
func TestRefusalsWithoutEndArePrintedSlowly(t *testing.T) {
	c := newTerminal()
	c.elsewhere = true
	s := NewScreen(ScreenConfig{Console: c, Title: "ig-gpu hangs"})
	s.begin(run{cancel: func() {}})
	const many = 10 * maxMessages
	for n := range many {
		s.message(refusal(n, 0))
	}
	s.message(verdict(1))
	s.message(message{kind: "warning", key: "warn", text: "the program's own", counted: true})
	s.Close()
	printed := strings.Count(c.raw.String(), "out of memory")
	require.GreaterOrEqual(t, printed, maxMessages)
	require.Less(t, printed, 2*maxMessages, "one a second beyond the first ones")
	require.Contains(t, c.raw.String(), "hang 1\n")
	require.Contains(t, c.raw.String(), "the program's own\n")
	require.Contains(t, c.raw.String(), fmt.Sprintf("%d more messages were not printed: they came too fast\n", many-printed))
}

// TestAtATerminalTheNewestMessagesAreKept, at the cost of what there is most of.
func TestAtATerminalTheNewestMessagesAreKept(t *testing.T) {
	s := NewScreen(ScreenConfig{Console: newTerminal(), Title: "t"})
	s.interactive = true
	s.message(verdict(1))
	s.message(refusal(1, 0))
	for n := range 10 * maxMessages {
		s.message(refusal(2, n))
	}
	s.message(verdict(2))
	final := s.final()
	for _, kept := range []string{"hang 1\n", "[1] at 0", fmt.Sprintf("[2] at %d\n", 10*maxMessages-1), "hang 2\n"} {
		require.Contains(t, strings.ReplaceAll(final, "\033[0m", ""), kept)
	}
	require.NotContains(t, final, "[2] at 0")
	require.Contains(t, final, fmt.Sprintf("%d more messages were not kept", 10*maxMessages+3-maxMessages))
}

// TestProcessesThatStartOverLeaveRoomForVerdicts, as those of a pod that crashes again and again do.
func TestProcessesThatStartOverLeaveRoomForVerdicts(t *testing.T) {
	s := NewScreen(ScreenConfig{Console: newTerminal(), Title: "t"})
	s.interactive = true
	s.message(verdict(1))
	for n := range 10 * maxMessages {
		s.message(refusal(n, 0))
	}
	final := s.final()
	require.Contains(t, final, "hang 1")
	require.Contains(t, final, fmt.Sprintf("[%d] at 0", 10*maxMessages-1))
}
