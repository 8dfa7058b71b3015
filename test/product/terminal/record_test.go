// SPDX-License-Identifier: Apache-2.0

package terminal

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
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
