// SPDX-License-Identifier: Apache-2.0

package verb

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/format/pprof"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

func TestLeaksNamesTheLineThatGrows(t *testing.T) {
	var files []string
	for n := range int64(6) {
		files = append(files, filepath.Join(t.TempDir(), fmt.Sprint(n)))
		f, err := os.Create(files[n])
		require.NoError(t, err)
		p := profile.New(time.Unix(600*n, 0), []profile.Row{held("load", 10, 4<<30, 32), held("cache", 20, n<<20+1, n+1)})
		require.NoError(t, pprof.Encode(f, p))
		require.NoError(t, f.Close())
	}
	var out bytes.Buffer
	cmd := newLeaks()
	cmd.SetOut(&out)
	cmd.SetArgs(files)
	require.NoError(t, cmd.Execute())
	require.Equal(t, `   PER HOUR       GREW  OBJECTS  CONFIDENCE      WORK  DEVICE    KIND FRAME
  +6.00 MiB  +5.00 MiB       +5      99.6 %  the same       0  device cache (serve.py:20)
`, out.String())

	cmd = newLeaks()
	cmd.SetArgs(files[:3])
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	require.Error(t, cmd.Execute())

	cpu := filepath.Join(t.TempDir(), "cpu.pb.gz")
	f, err := os.Create(cpu)
	require.NoError(t, err)
	require.NoError(t, pprof.Encode(f, &profile.Profile{Time: time.Unix(9000, 0), Subject: profile.CPU}))
	require.NoError(t, f.Close())
	cmd = newLeaks()
	cmd.SetArgs(append(files, cpu))
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	require.ErrorContains(t, cmd.Execute(), "leaks needs profiles of memory")
}
