// SPDX-License-Identifier: Apache-2.0

// Package terminal tests the screen that a user sees: bin/ig-gpu in the foreground of a
// pseudo-terminal, with a terminal emulator, so that tests compare the screen and not the
// sequences that paint it.
package terminal

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/hinshun/vt10x"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/bpftest"
)

// waitLimit is how long a condition may take on a busy machine.
const waitLimit = 3 * time.Minute

// lastByte is NUL.
const lastByte = "\000"

// TestMain runs four tests at once, on a machine with fewer processors, too: they wait most of
// the time.
func TestMain(m *testing.M) {
	// Where nohup runs the tests, programs would ignore it: a signal that is handled here is
	// at its default there.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	flag.Parse()
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// program is bin/ig-gpu of this tree.
func program(t testing.TB) string {
	t.Helper()
	bpftest.RequireRoot(t)
	path, err := filepath.Abs("../../../bin/ig-gpu")
	require.NoError(t, err)
	_, err = os.Stat(path)
	require.NoError(t, err, "run make build")
	return path
}

// size of a terminal.
type size struct{ columns, lines int }

var small, large = size{80, 24}, size{200, 50}

// screen is a terminal with ig-gpu in its foreground.
type screen struct {
	t          testing.TB
	cmd        *exec.Cmd
	keys, here *os.File // the side of the keyboard, and that of the program
	done       chan struct{}

	mu       sync.Mutex
	emulator vt10x.Terminal
	raw      bytes.Buffer
}

// start runs ig-gpu with these arguments in a terminal of this size.
func start(t testing.TB, s size, env []string, args ...string) *screen {
	t.Helper()
	return startIn(t, s, "", env, args...)
}

// startIn is start in a folder.
func startIn(t testing.TB, s size, dir string, env []string, args ...string) *screen {
	t.Helper()
	v := &screen{t: t, done: make(chan struct{}), emulator: vt10x.New(vt10x.WithSize(s.columns, s.lines))}
	var err error
	v.keys, v.here, err = pty.Open()
	require.NoError(t, err)
	require.NoError(t, pty.Setsize(v.keys, &pty.Winsize{Rows: uint16(s.lines), Cols: uint16(s.columns)}))

	v.cmd = exec.Command(program(t), args...)
	v.cmd.Dir = dir
	v.cmd.Env = append(append(os.Environ(), "TERM=xterm-256color"), env...)
	v.cmd.Stdin, v.cmd.Stdout, v.cmd.Stderr = v.here, v.here, v.here
	v.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	require.NoError(t, v.cmd.Start())
	go v.read()
	go func() {
		_ = v.cmd.Wait() // the exit code is checked by waitEnd
		close(v.done)
	}()
	t.Cleanup(func() {
		_ = v.cmd.Process.Kill()
		<-v.done
		_ = v.here.Close()
		_ = v.keys.Close()
		if t.Failed() {
			t.Logf("the screen's end:\n%s", v.text())
		}
	})
	return v
}

func (v *screen) read() {
	buffer := make([]byte, 64<<10)
	for {
		n, err := v.keys.Read(buffer)
		v.mu.Lock()
		v.raw.Write(buffer[:n])
		_, _ = v.emulator.Write(buffer[:n])
		v.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// text returns the text of the screen, without trailing blanks of lines.
func (v *screen) text() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	lines := strings.Split(v.emulator.String(), "\n")
	for n := range lines {
		lines[n] = strings.TrimRight(lines[n], " ")
	}
	return strings.TrimRight(strings.Join(lines, "\n"), "\n")
}

// written returns every byte so far.
func (v *screen) written() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.raw.String()
}

func (v *screen) press(keys string) {
	v.t.Helper()
	_, err := v.keys.WriteString(keys)
	require.NoError(v.t, err)
}

func (v *screen) resize(s size) {
	v.t.Helper()
	v.mu.Lock()
	v.emulator.Resize(s.columns, s.lines)
	v.mu.Unlock()
	require.NoError(v.t, pty.Setsize(v.keys, &pty.Winsize{Rows: uint16(s.lines), Cols: uint16(s.columns)}))
}

// words is the text as if no line were broken.
func words(text string) string { return strings.Join(strings.Fields(text), " ") }

// wait polls the screen until the pattern matches it or its words, and returns it.
func (v *screen) wait(what, pattern string) string {
	v.t.Helper()
	re := regexp.MustCompile(pattern)
	for deadline := time.Now().Add(waitLimit); ; time.Sleep(20 * time.Millisecond) {
		text := v.text()
		if re.MatchString(text) || re.MatchString(words(text)) {
			return text
		}
		require.True(v.t, time.Now().Before(deadline), "waited %v: %s: %s\non the screen:\n%s", waitLimit, what, pattern, text)
	}
}

// waitOther waits until the screen is not this one, and returns it.
func (v *screen) waitOther(what, old string) string {
	v.t.Helper()
	require.Eventually(v.t, func() bool { return v.text() != old }, waitLimit, 20*time.Millisecond, what)
	return v.text()
}

// waitEnd waits for the end, and checks that the terminal is as it was: lines and echo,
// the shell's screen, a cursor.
func (v *screen) waitEnd() {
	v.t.Helper()
	select {
	case <-v.done:
	case <-time.After(waitLimit):
		require.Fail(v.t, "ig-gpu does not end", v.text())
	}
	settings, err := unix.IoctlGetTermios(int(v.here.Fd()), unix.TCGETS)
	require.NoError(v.t, err)
	require.NotZero(v.t, settings.Lflag&unix.ICANON)
	require.NotZero(v.t, settings.Lflag&unix.ECHO)
	// Its last output may still be in the pseudo-terminal: a byte after it that terminals
	// ignore shows when it has arrived.
	_, err = v.here.WriteString(lastByte)
	require.NoError(v.t, err)
	require.Eventually(v.t, func() bool { return strings.HasSuffix(v.written(), lastByte) }, waitLimit, 20*time.Millisecond, "the whole output")
	all := v.written()
	require.Equal(v.t, strings.Count(all, "\033[?1049h"), strings.Count(all, "\033[?1049l"), "the shell's screen is back")
	require.Equal(v.t, strings.Count(all, "\033[?25l"), strings.Count(all, "\033[?25h"), "the cursor is back")
}

// givesKeys: the terminal gives each key at once.
func (v *screen) givesKeys() bool {
	v.t.Helper()
	settings, err := unix.IoctlGetTermios(int(v.here.Fd()), unix.TCGETS)
	require.NoError(v.t, err)
	return settings.Lflag&unix.ICANON == 0
}
