// SPDX-License-Identifier: Apache-2.0

// Package console reads single keys from the terminal that a program was started at, and
// leaves the terminal as it was.
package console

import (
	"errors"
	"os"
	"os/signal"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// turn is the interval at which the reader checks whether it is to end, and whether the
// program is in the foreground (again).
const turn = 200 * time.Millisecond

// Terminal gives its keys as they are pressed, without Enter. Ctrl-C and Ctrl-Z stay the
// signals that they are. It is safe for concurrent use.
type Terminal struct {
	in, out *os.File

	mu    sync.Mutex
	saved *unix.Termios // state that Restore puts back; nil: nothing was changed
	stop  *os.File      // closed to end the reader, which polls the other end of the pipe
	// entered: the screen is the program's own.
	entered bool
	done    sync.WaitGroup
}

// New returns the console of a program's standard input and output.
func New(in, out *os.File) *Terminal { return &Terminal{in: in, out: out} }

// IsInteractive reports whether both are a terminal in which this program is in the
// foreground, and which can place text (TERM is not dumb). The kernel would stop a
// background program that reads.
func (t *Terminal) IsInteractive() bool {
	_, err := unix.IoctlGetTermios(int(t.out.Fd()), unix.TCGETS)
	return err == nil && knowsSequences() && t.isForeground()
}

// HasColour reports whether colour is allowed: NO_COLOR is not set, https://no-color.org, and the
// terminal knows sequences.
func (t *Terminal) HasColour() bool { return os.Getenv("NO_COLOR") == "" && knowsSequences() }

func knowsSequences() bool { return os.Getenv("TERM") != "dumb" }

// Sequences of xterm, which all later terminals support: the alternate screen, and a
// hidden cursor.
const (
	enter = "\033[?1049h\033[?25l"
	leave = "\033[?25h\033[?1049l"
)

// Enter turns to a screen of the program's own, until Restore.
func (t *Terminal) Enter() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.entered {
		t.entered = true
		_, _ = t.out.WriteString(enter)
	}
}

// HangUp is SIGHUP, by which a terminal that closes would end the program, for signal.Notify beside SIGINT; none
// where the program was started to ignore it, as by nohup: Notify would undo that.
func HangUp() []os.Signal {
	if signal.Ignored(unix.SIGHUP) {
		return nil
	}
	return []os.Signal{unix.SIGHUP}
}

// isForeground is false, too, where the input is no terminal.
func (t *Terminal) isForeground() bool {
	group, err := unix.IoctlGetInt(int(t.in.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// Write writes to the output.
func (t *Terminal) Write(b []byte) (int, error) { return t.out.Write(b) }

// Size is the number of columns and of lines; 0 where it is not known.
func (t *Terminal) Size() (columns, lines int) {
	size, err := unix.IoctlGetWinsize(int(t.out.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, 0
	}
	return int(size.Col), int(size.Row)
}

// Read calls on with each byte that is typed, in one goroutine, until Restore. It does
// nothing if the terminal cannot be configured; errors end the reading.
func (t *Terminal) Read(on func(byte)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stop != nil {
		return
	}
	ended, stop, err := os.Pipe()
	if err != nil {
		return
	}
	if !t.set() {
		_, _ = ended.Close(), stop.Close()
		return
	}
	t.stop = stop
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, unix.SIGCONT, unix.SIGQUIT)
	t.done.Go(func() {
		defer ended.Close()
		defer signal.Stop(signals)
		t.read(on, ended, signals)
	})
}

// set makes the terminal give keys at once and not show them.
func (t *Terminal) set() bool {
	fd := int(t.in.Fd())
	now, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil || !t.isForeground() {
		return false
	}
	keys := *now
	keys.Lflag &^= unix.ICANON | unix.ECHO
	keys.Cc[unix.VMIN], keys.Cc[unix.VTIME] = 0, 0 // a read never waits
	if unix.IoctlSetTermios(fd, unix.TCSETS, &keys) != nil {
		return false
	}
	if t.saved == nil {
		t.saved = now
	}
	return true
}

func (t *Terminal) read(on func(byte), ended *os.File, signals chan os.Signal) {
	fds := []unix.PollFd{{Fd: int32(ended.Fd())}, {Fd: int32(t.in.Fd()), Events: unix.POLLIN}}
	var keys [64]byte
	for {
		select {
		case s := <-signals:
			if !t.signalled(s.(unix.Signal)) {
				return
			}
		default:
		}
		n, err := unix.Poll(fds, int(turn/time.Millisecond))
		if err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
		if n > 0 && fds[0].Revents != 0 {
			return
		}
		if n > 0 && fds[1].Revents&unix.POLLIN == 0 && fds[1].Revents != 0 { // the terminal is gone
			return
		}
		// In the background the kernel would stop a reader.
		was := fds[1].Events != 0
		fds[1].Events = 0
		if t.isForeground() {
			fds[1].Events = unix.POLLIN
			if !was { // the shell has set the terminal meanwhile, without a signal
				t.again()
			}
		}
		if n <= 0 || fds[1].Revents == 0 || fds[1].Events == 0 {
			continue
		}
		n, err = t.typed(keys[:])
		switch {
		case errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN):
		case err != nil, n == 0 && fds[1].Revents&^unix.POLLIN != 0: // the terminal is gone
			return
		}
		for _, key := range keys[:max(n, 0)] {
			on(key)
		}
	}
}

// typed reads what was typed and does not wait: Ctrl-C discards keys that poll has reported
// (termios(3), NOFLSH), and so does Restore, after which a read waits for a whole line.
func (t *Terminal) typed(keys []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.saved == nil {
		return 0, nil
	}
	return unix.Read(int(t.in.Fd()), keys)
}

// signalled: a program that was stopped and continues sets the terminal again, since the
// shell has set it as it likes it; one that a signal ends gives it back before. False: the
// signal ends it.
func (t *Terminal) signalled(s unix.Signal) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s == unix.SIGCONT {
		if t.saved != nil {
			t.set()
		}
		return true
	}
	t.putBack()
	signal.Reset(s)
	_ = unix.Kill(os.Getpid(), s)
	return false
}

// again sets the terminal as Read did.
func (t *Terminal) again() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.saved != nil {
		t.set()
	}
}

// putBack is called with t.mu held.
func (t *Terminal) putBack() {
	if t.entered {
		t.entered = false
		_, _ = t.out.WriteString(leave)
	}
	if t.saved != nil && t.isForeground() {
		_ = unix.IoctlSetTermios(int(t.in.Fd()), unix.TCSETS, t.saved)
	}
	t.saved = nil
}

// Restore restores the terminal, ends the reading and waits for that, so it must not be
// called from Read's callback. It may be called again.
func (t *Terminal) Restore() {
	t.mu.Lock()
	t.putBack()
	if t.stop != nil {
		_ = t.stop.Close()
		t.stop = nil
	}
	t.mu.Unlock()
	t.done.Wait()
}
