// SPDX-License-Identifier: Apache-2.0

package terminal

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestRecordEndsWithCtrlCAndNamesItsFiles, at two sizes: it has no screen and reads no keys, and no
// data is lost.
func TestRecordEndsWithCtrlCAndNamesItsFiles(t *testing.T) {
	for _, c := range []size{small, large} {
		t.Run(fmt.Sprintf("%dx%d", c.columns, c.lines), func(t *testing.T) {
			s := startServer(t)
			dir := t.TempDir()
			v := startIn(t, c, dir, nil, "record", fmt.Sprint(s.PID()), "--for", "0", "-o", "memory.pb.gz", "-o", "memory.html")
			v.wait("what it does", fmt.Sprintf(`Recording memory of process %d until Ctrl-C`, s.PID()))
			s.traced(t, v.cmd, 1)
			s.request()
			require.False(t, v.givesKeys())
			v.press("\x03")
			v.waitEnd()
			require.True(t, v.cmd.ProcessState.Success(), v.cmd.ProcessState)
			require.Regexp(t, `Wrote memory\.pb\.gz \([^)]+\), pprof profile: ig-gpu report`, v.written())
			require.Regexp(t, `Wrote memory\.html \([^)]+\), flame graph`, v.written())
			require.NotContains(t, v.written(), "IN-USE")
			if c == large {
				v.picture("record")
			}

			report, err := exec.Command(program(t), "report", filepath.Join(dir, "memory.pb.gz")).CombinedOutput()
			require.NoError(t, err, string(report))
			require.Contains(t, string(report), kept(t))
		})
	}
}

// TestFilesAreWrittenWhenTheTerminalCloses, as by the end of a connection of ssh.
func TestFilesAreWrittenWhenTheTerminalCloses(t *testing.T) {
	for _, c := range []struct {
		name string
		args []string
		up   string // what is at the terminal while it runs
	}{
		{"record", []string{"record", "--for", "1h", "-o", "memory.pb.gz"}, "Recording memory"},
		{"run", []string{"run", "cuda_alloc", "--pprof-out", "memory.pb.gz", "--pid"}, "keys: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := startServer(t)
			dir := t.TempDir()
			v := startIn(t, small, dir, nil, append(c.args, fmt.Sprint(s.PID()))...)
			v.wait("the run", c.up)
			s.traced(t, v.cmd, 1)
			s.request()
			require.NoError(t, unix.IoctlSetInt(int(v.here.Fd()), unix.TIOCVHANGUP, 0))
			select {
			case <-v.done:
			case <-time.After(waitLimit):
				require.Fail(t, "ig-gpu does not end")
			}
			require.Less(t, v.cmd.ProcessState.SystemTime()+v.cmd.ProcessState.UserTime(), time.Minute, "nobody reads a terminal that is gone in a loop")
			report, err := exec.Command(program(t), "report", filepath.Join(dir, "memory.pb.gz")).CombinedOutput()
			require.NoError(t, err, string(report))
			require.Contains(t, string(report), kept(t))
		})
	}
}
