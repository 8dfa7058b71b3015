// SPDX-License-Identifier: Apache-2.0

package terminal

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/simulated"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject"
)

// server is examples/torch/serve.py on the simulated driver and allocator: each request
// keeps 26 MiB on device 0 and 14 MiB on device 1.
type server struct{ *subject.Process }

func startServer(t testing.TB) *server {
	t.Helper()
	cmd := exec.Command("python3", "../../../examples/torch/serve.py")
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+filepath.Dir(simulated.Driver(t))+":"+simulated.Build(t, "simtorch"))
	s := &server{subject.Start(t, cmd)}
	s.Expect("ready")
	return s
}

func (s *server) request() {
	s.Say("%s", "")
	s.Expect("done")
}

// kept is the line of serve.py that keeps memory, as its place is shown.
func kept(t testing.TB) string {
	t.Helper()
	source, err := os.ReadFile("../../../examples/torch/serve.py")
	require.NoError(t, err)
	before, _, found := strings.Cut(string(source), "self.blocks[request] =")
	require.True(t, found)
	return fmt.Sprintf("KVCache.append (serve.py:%d)", 1+strings.Count(before, "\n"))
}

// requireFits: no line is longer than the terminal, nor are there more of them.
func requireFits(t *testing.T, s size, text string) {
	t.Helper()
	lines := strings.Split(text, "\n")
	require.LessOrEqual(t, len(lines), s.lines)
	for _, l := range lines {
		require.LessOrEqual(t, len([]rune(l)), s.columns, l)
	}
}

// TestTopShowsTheLineAndWhatGrewSinceAMark, at two sizes, of `top` and of `run`.
func TestTopShowsTheLineAndWhatGrewSinceAMark(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		size size
		args []string
	}{
		{"top at 80x24", small, []string{"top"}},
		{"top at 200x50", large, []string{"top"}},
		{"run cuda_alloc at 80x24", small, []string{"run", "cuda_alloc", "--pid"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := startServer(t)
			v := start(t, c.size, nil, append(c.args, fmt.Sprint(s.PID()))...)
			line := regexp.QuoteMeta(kept(t))
			v.wait("attached", `attached to 1 process, \d+ functions`)
			for range 2 {
				s.request()
			}
			text := v.wait("the line that keeps memory", `\d+\.\d MiB .*tensor .*`+line)
			requireFits(t, c.size, text)
			require.Regexp(t, `IN-USE`, text)
			require.Regexp(t, `total of tensors`, text)
			require.Regexp(t, `keys: .*m mark`, text)
			require.Contains(t, text, "0 lost")

			v.press("m")
			v.wait("the mark", `Mark 1 was set`)
			s.request()
			v.press("d")
			// 26 and 14 MiB of the request; a request from before the mark may be in.
			text = v.wait("what grew", `Since mark 1 at(.|\n)*\+(40|80)\.0 MiB .*tensor .*`+line)
			requireFits(t, c.size, text)
			if c.name == "top at 80x24" {
				v.picture("top")
			}
			v.press("d")
			v.wait("the table again", `IN-USE`)

			v.press("t")
			v.wait("the tree", `CALLERS, THEN WHAT THEY CALL(.|\n)* +KVCache\.append`)
			v.press("tg")
			v.wait("stacks", `g by stack(.|\n)*|STACK`)
			v.press("gg")
			v.wait("by device", `g by device`)
			v.wait("devices", `GPU 1`)
			v.press("gggg")
			v.press("?")
			v.wait("help", `what has changed since the mark, and back`)
			v.press("?")

			v.press("q")
			v.waitEnd()
			require.True(t, v.cmd.ProcessState.Success(), v.cmd.ProcessState)
			v.wait("the table stays on the shell's screen", `IN-USE(.|\n)*`+line+`(.|\n)*ran \d+`)
		})
	}
}

// TestTabShowsLaunchesAndWaits, which are only counted from then on.
func TestTabShowsLaunchesAndWaits(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	v := start(t, large, nil, "top", fmt.Sprint(s.PID()))
	v.wait("attached", `attached to 1 process`)
	v.press("\t")
	v.wait("launches", `No kernel has been launched|LAUNCHES|first numbers`)
	v.press("\t")
	v.wait("waits", `No thread has waited|WAITED|first numbers`)
	v.press("\t")
	v.wait("memory", `No GPU memory|IN-USE|first numbers`)
	v.press("\x03")
	v.waitEnd()
}

// TestTheScreenFollowsTheTerminalsSize while it runs.
func TestTheScreenFollowsTheTerminalsSize(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	v := start(t, large, nil, "top", fmt.Sprint(s.PID()))
	v.wait("attached", `attached to 1 process`)
	s.request()
	s.request()
	line := regexp.QuoteMeta(kept(t))
	v.wait("all columns", `PROCESS(.|\n)*python3\[\d+\] +`+line)
	v.resize(small)
	v.wait("no column for the process", `IN-USE .*LINE\n(.|\n)*`+line)
	require.NotContains(t, v.text(), "PROCESS")
	requireFits(t, small, v.text())
	v.wait("the keys are on the last line", `(?:.*\n){23}keys: `)
	v.press("q")
	v.waitEnd()
}

// TestTheTerminalIsRestored however the program ends.
func TestTheTerminalIsRestored(t *testing.T) {
	t.Parallel()
	hasSignal := func(signal syscall.Signal) func(*screen) error {
		return func(v *screen) error { return v.cmd.Process.Signal(signal) }
	}
	for _, c := range []struct {
		name     string
		end      func(*screen) error
		args     []string
		isKilled bool
	}{
		{"Ctrl-C of top", func(v *screen) error { v.press("\x03"); return nil }, []string{"top"}, false},
		{"Ctrl-C of hangs", func(v *screen) error { v.press("\x03"); return nil }, []string{"hangs"}, false},
		{"SIGTERM of hangs", hasSignal(syscall.SIGTERM), []string{"hangs"}, false},
		{"SIGHUP of run", hasSignal(syscall.SIGHUP), []string{"run", "cuda_alloc", "--host"}, false},
		{"SIGHUP of top", hasSignal(syscall.SIGHUP), []string{"top"}, false},
		{"SIGQUIT of top", hasSignal(syscall.SIGQUIT), []string{"top"}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			v := start(t, small, nil, c.args...)
			v.wait("the keys", `keys: `)
			require.True(t, v.givesKeys())
			require.NoError(t, c.end(v))
			v.waitEnd()
			require.Equal(t, !c.isKilled, v.cmd.ProcessState.Success(), v.cmd.ProcessState)
		})
	}
}

// TestAPauseHoldsTheScreen, and counting continues.
func TestAPauseHoldsTheScreen(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	v := start(t, small, nil, "top", fmt.Sprint(s.PID()))
	v.wait("attached", `attached to 1 process`)
	s.request()
	s.request()
	v.wait("the line", `tensor .*KVCache`)
	v.press("p")
	held := v.wait("the pause", `paused`)
	for range 3 {
		s.request()
	}
	time.Sleep(1500 * time.Millisecond) // longer than a repaint takes; a slow one would not fail
	require.Equal(t, held, v.text())
	v.press("p")
	v.wait("it goes on", `IN-USE`)
	require.Eventually(t, func() bool { return v.text() != held }, waitLimit, 50*time.Millisecond)
	v.press("q")
	v.waitEnd()
}

// TestNoColourIsWrittenOnDemand, and none to a terminal that knows no sequences; nor in messages.
func TestNoColourIsWrittenOnDemand(t *testing.T) {
	t.Parallel()
	for _, env := range []string{"NO_COLOR=1", "TERM=dumb"} {
		v := start(t, large, []string{env}, "run", "cuda_alloc", "--pid", fmt.Sprint(os.Getpid()), "--timeout", "1s",
			"--snapshot-out", filepath.Join(t.TempDir(), "none.pickle"))
		v.waitEnd()
		require.Contains(t, v.written(), "none.pickle", env)
		require.NotRegexp(t, `\x1b\[[0-9;]*m`, v.written(), env)
	}
	v := start(t, small, []string{"NO_COLOR=1"}, "top")
	v.wait("the keys", `keys: `)
	v.press("q")
	v.waitEnd()
	require.NotRegexp(t, `\x1b\[[0-9;]*m`, v.written())

	v = start(t, small, []string{"TERM=dumb"}, "top", "--timeout", "2s")
	v.waitEnd()
	require.NotContains(t, v.written(), "\033")
	require.Contains(t, v.written(), "ran ")
}

// traced waits until so many gadgets of ig-gpu have attached their probes to the server's driver.
func (s *server) traced(t testing.TB, by *exec.Cmd, gadgets int) {
	t.Helper()
	ctx, end := context.WithTimeout(t.Context(), waitLimit)
	defer end()
	require.True(t, subject.WaitProbes(ctx, by.Process.Pid, "libcuda.so.1", gadgets), "the driver has probes")
}

// TestAPipeHasOneTable and no escape sequence.
func TestAPipeHasOneTable(t *testing.T) {
	for _, args := range [][]string{{"top"}, {"run", "cuda_alloc", "--pid"}} {
		s := startServer(t)
		cmd := exec.Command(program(t), append(args, fmt.Sprint(s.PID()))...)
		var out strings.Builder
		cmd.Stdout = &out
		require.NoError(t, cmd.Start())
		t.Cleanup(func() { _ = cmd.Process.Kill() })
		s.traced(t, cmd, 1)
		for range 3 {
			s.request()
		}
		require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
		require.NoError(t, cmd.Wait())
		text := out.String()
		require.NotContains(t, text, "\033")
		require.Equal(t, 1, strings.Count(text, "IN-USE"), text)
		require.Contains(t, text, kept(t))
		require.Regexp(t, `attached to 1 process, \d+ functions  ran \S+s  0 lost\n$`, text)
	}
}

// TestJSONAtATerminalIsUnchanged: no screen, and no keys are read.
func TestJSONAtATerminalIsUnchanged(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	v := start(t, large, nil, "run", "cuda_alloc", "--pid", fmt.Sprint(s.PID()), "-o", "json")
	written := func(text string) func() bool { return func() bool { return strings.Contains(v.written(), text) } }
	require.Eventually(t, written(`"type":"attachments"`), waitLimit, 20*time.Millisecond)
	s.request()
	require.Eventually(t, written(`"type":"allocs"`), waitLimit, 20*time.Millisecond)
	require.False(t, v.givesKeys())
	require.NotContains(t, v.written(), "\033")
}

// TestKeysWorkAgainAfterAStop: by Ctrl-Z, after which the shell has changed the terminal.
func TestKeysWorkAgainAfterAStop(t *testing.T) {
	t.Parallel()
	v := start(t, small, nil, "run", "cuda_alloc", "--host")
	v.wait("the keys", `keys: `)
	require.NoError(t, v.cmd.Process.Signal(syscall.SIGSTOP))
	settings, err := unix.IoctlGetTermios(int(v.here.Fd()), unix.TCGETS)
	require.NoError(t, err)
	settings.Lflag |= unix.ICANON | unix.ECHO
	require.NoError(t, unix.IoctlSetTermios(int(v.here.Fd()), unix.TCSETS, settings))
	require.NoError(t, v.cmd.Process.Signal(syscall.SIGCONT))
	require.Eventually(t, v.givesKeys, waitLimit, 50*time.Millisecond)
	v.press("q")
	v.waitEnd()
}
