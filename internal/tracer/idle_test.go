// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestIdleCost prints what the tracer costs while nothing happens but 300
// processes exist. TRACER_IDLE sets how long it is watched, e.g. 20s.
func TestIdleCost(t *testing.T) {
	k := load(t)
	watch, err := time.ParseDuration(os.Getenv("TRACER_IDLE"))
	if err != nil {
		watch = 2 * time.Second
	}
	for range 300 {
		cmd := exec.Command("sleep", "1000")
		require.NoError(t, cmd.Start())
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	}
	begin := cpu(t)
	tr, _ := start(t, Config{Programs: k.programs})
	t.Logf("first look at %d processes: %v CPU", tr.Stats().Processes, cpu(t)-begin)
	begin = cpu(t)
	read := tr.Stats().MapsRead
	time.Sleep(watch)
	used := cpu(t) - begin
	percent := 100 * used.Seconds() / watch.Seconds()
	t.Logf("%v CPU in %v: %.2f %% of a core; %d maps files read", used, watch, percent, tr.Stats().MapsRead-read)
	require.Less(t, percent, 5.0) // other processes of the machine cause events
}

// cpu is the processor time of this process.
func cpu(t testing.TB) time.Duration {
	t.Helper()
	var u unix.Rusage
	require.NoError(t, unix.Getrusage(unix.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func BenchmarkScan(b *testing.B) {
	k := load(b)
	tr, _ := start(b, Config{Programs: k.programs, ScanInterval: time.Hour})
	for b.Loop() {
		tr.mu.Lock()
		tr.scan()
		tr.mu.Unlock()
	}
	b.ReportMetric(float64(tr.Stats().Processes), "processes")
}
