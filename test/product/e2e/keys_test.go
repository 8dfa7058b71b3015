// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject"
)

// screen is a terminal with ig-gpu in its foreground.
type screen struct {
	t          testing.TB
	cmd        *exec.Cmd
	keys, here *os.File // the side of the keyboard, and that of the program
	done       chan struct{}

	mu    sync.Mutex
	shown bytes.Buffer
}

func startAtTerminal(t testing.TB, args ...string) *screen {
	t.Helper()
	s := &screen{t: t, done: make(chan struct{})}
	var err error
	s.keys, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	fd := int(s.keys.Fd())
	require.NoError(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	require.NoError(t, err)
	s.here, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	require.NoError(t, unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 30, Col: 140}))

	s.cmd = exec.Command(program(t), append([]string{"run", "cuda_alloc", "--host"}, args...)...)
	s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = s.here, s.here, s.here
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	require.NoError(t, s.cmd.Start())
	go func() {
		buffer := make([]byte, 64<<10)
		for {
			n, err := s.keys.Read(buffer)
			s.mu.Lock()
			s.shown.Write(buffer[:n])
			s.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	go func() {
		_ = s.cmd.Wait()
		close(s.done)
	}()
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill()
		<-s.done
		_ = s.here.Close()
		_ = s.keys.Close()
		if t.Failed() {
			t.Logf("the screen's end:\n%s", s.page())
		}
	})
	return s
}

// page is what has been shown since the screen was cleared last.
func (s *screen) page() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.shown.String()
	return regexp.MustCompile(`[ \t]+`).ReplaceAllString(all[max(0, strings.LastIndex(all, "\033[2J")):], " ")
}

func (s *screen) press(keys string) {
	s.t.Helper()
	_, err := s.keys.WriteString(keys)
	require.NoError(s.t, err)
}

func (s *screen) waitPage(what, pattern string) string {
	s.t.Helper()
	var page string
	eventually(s.t, what, func() bool {
		page = s.page()
		return regexp.MustCompile(pattern).MatchString(page)
	})
	return page
}

// givesKeys tells whether the terminal gives each key at once, and does not show it.
func (s *screen) givesKeys() bool {
	s.t.Helper()
	settings, err := unix.IoctlGetTermios(int(s.here.Fd()), unix.TCGETS)
	require.NoError(s.t, err)
	require.Equal(s.t, settings.Lflag&unix.ICANON == 0, settings.Lflag&unix.ECHO == 0)
	return settings.Lflag&unix.ICANON == 0
}

func (s *screen) waitEnd() {
	s.t.Helper()
	eventually(s.t, "the end", func() bool {
		select {
		case <-s.done:
			return true
		default:
			return false
		}
	})
}

// Keys at the table: a mark, what has changed since, and back again; then the end, and
// the terminal is as it was.
func TestKeysSetAMarkAndShowWhatGrewSince(t *testing.T) {
	server := startServer(t, "serve.py")
	s := startAtTerminal(t, "--pid", fmt.Sprint(server.PID()))
	frame := regexp.QuoteMeta(lineOf(t, "serve.py", "KVCache.append", "self.blocks[request] ="))
	s.waitPage("the keys", `keys: m sets a mark \(0 so far\)`)
	eventually(t, "keys", s.givesKeys)
	for range 2 { // the probes may not be there at the first
		server.request()
	}
	s.waitPage("the table", `tensor \d .*`+frame+`(.|\n)*keys: m`)
	s.press("m")
	s.waitPage("the mark", `keys: m sets a mark \(1 so far\)`)
	server.request()
	s.press("d")
	page := s.waitPage("what grew", `\+26\.0 MiB 0 B (26|52)\.0 MiB (52|78)\.0 MiB \+1 0 tensor `+frame)
	t.Log(page)
	require.Regexp(t, `Since mark 1 at .* ago\. GREW: allocated and kept\. FREED: freed\.`, page)
	require.Regexp(t, `\n ?\+14\.0 MiB 0 B (14|28)\.0 MiB (28|42)\.0 MiB \+1 1 tensor `+frame, page)
	require.Regexp(t, `\n ?0 B 5[12]\.0 MiB 0 B 0 B \+0 0 tensor Engine\.forward`, page)
	require.Regexp(t, `\n ?\+40\.0 MiB .* \(all that tensors hold of it\)`, page)
	s.press("d")
	s.waitPage("the table again", `COMM(.|\n)*tensor \d .*`+frame+`(.|\n)*keys: m sets a mark \(1 so far\)`)
	s.press("q")
	s.waitEnd()
	require.True(t, s.cmd.ProcessState.Success(), s.cmd.ProcessState)
	require.False(t, s.givesKeys())
}

// However it ends, the terminal is as it was: by Ctrl-C, by a signal, also one that ends
// the program at once.
func TestTheTerminalIsGivenBack(t *testing.T) {
	// What nohup ignores is inherited; a program does not inherit what its parent handles.
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, unix.SIGHUP)
	defer signal.Stop(hangups)
	for _, c := range []struct {
		name string
		end  func(*screen) error
	}{
		{"Ctrl-C", func(s *screen) error { s.press("\x03"); return nil }},
		{"SIGTERM", func(s *screen) error { return s.cmd.Process.Signal(unix.SIGTERM) }},
		{"SIGHUP", func(s *screen) error { return s.cmd.Process.Signal(unix.SIGHUP) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := startAtTerminal(t)
			s.waitPage("the keys", `keys: m sets a mark`)
			eventually(t, "keys", s.givesKeys)
			require.NoError(t, c.end(s))
			s.waitEnd()
			require.False(t, s.givesKeys())
		})
	}
}

// JSON at a terminal is left alone.
func TestNoKeysAreReadWhereThereIsNoTable(t *testing.T) {
	w := subject.StartSteps(t)
	w.Load()
	s := startAtTerminal(t, "-o", "json", "--pid", fmt.Sprint(w.PID()))
	s.waitPage("the attachment", `"type":"attachments"`)
	w.Do("alloc weights 1 4096")
	s.waitPage("output of two reads", `"type":"allocs"(.|\n)*\n\{"type":"allocs"`)
	require.False(t, s.givesKeys())
	require.NotContains(t, s.page(), "keys:")
}

// Who is stopped by Ctrl-Z and continues has its keys again, though the shell has set the
// terminal meanwhile.
func TestKeysComeBackBehindAStop(t *testing.T) {
	s := startAtTerminal(t)
	s.waitPage("the keys", `keys: m sets a mark`)
	fd := int(s.here.Fd())
	require.NoError(t, s.cmd.Process.Signal(unix.SIGSTOP))
	settings, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	require.NoError(t, err)
	settings.Lflag |= unix.ICANON | unix.ECHO
	require.NoError(t, unix.IoctlSetTermios(fd, unix.TCSETS, settings))
	require.NoError(t, s.cmd.Process.Signal(unix.SIGCONT))
	eventually(t, "keys", s.givesKeys)
	s.press("q")
	s.waitEnd()
	require.False(t, s.givesKeys())
}
