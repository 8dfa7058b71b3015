// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject/usage"
)

// TestLongTimeline: 20,000 calls a second through ig-gpu, for 10 s, or for
// TIMELINE_SECONDS. Memory is bounded, and each call is in the file or counted as lost.
func TestLongTimeline(t *testing.T) {
	seconds := 10
	if s := os.Getenv("TIMELINE_SECONDS"); s != "" {
		var err error
		seconds, err = strconv.Atoi(s)
		require.NoError(t, err)
	}
	const rate, layers = 20_000, 332 // 999 calls a step
	steps := seconds * rate / (3*layers + 3)
	w := run(t, "decode.py", "--steps", fmt.Sprint(steps), "--layers", fmt.Sprint(layers), "--rate", fmt.Sprint(rate))
	tr := w.trace()
	began := time.Now()
	w.work()
	took := time.Since(began)
	peak := peakMiB(t, tr.cmd)
	require.NoError(t, tr.cmd.Process.Signal(os.Interrupt))
	require.NoError(t, tr.cmd.Wait(), tr.log.String())
	shown, meta := count(t, tr.path)
	lost := 0.0
	for _, n := range meta["lost"].(map[string]any) {
		lost += n.(float64)
	}
	info, err := os.Stat(tr.path)
	require.NoError(t, err)
	calls := steps * (3*layers + 3)
	t.Logf("%d calls in %.1f s: %.0f a second; %d shown, %.0f lost; %d MiB at most; a file of %d MiB",
		calls, took.Seconds(), float64(calls)/took.Seconds(), shown, lost, peak, info.Size()>>20)
	require.LessOrEqual(t, peak, 200)
	require.Equal(t, calls, shown+int(lost))
}

// peakMiB returns the peak memory of a running process.
func peakMiB(t *testing.T, cmd *exec.Cmd) int {
	t.Helper()
	most, err := usage.Memory(cmd.Process.Pid, "VmHWM")
	require.NoError(t, err)
	return int(most >> 20)
}

// count reads a trace of any size: how many calls of the loop are on the thread's own track.
func count(t *testing.T, path string) (calls int, meta map[string]any) {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	decoder := json.NewDecoder(z)
	for {
		token, err := decoder.Token()
		require.NoError(t, err)
		if token == json.Delim('[') {
			break
		}
	}
	for decoder.More() {
		var e struct {
			Ph, Cat  string
			Pid, Tid int64
		}
		require.NoError(t, decoder.Decode(&e))
		if e.Ph == "X" && e.Pid == e.Tid && (e.Cat == "launch" || e.Cat == "copy" || e.Cat == "wait") {
			calls++
		}
	}
	_, err = decoder.Token() // ]
	require.NoError(t, err)
	_, err = decoder.Token() // "metadata"
	require.NoError(t, err)
	require.NoError(t, decoder.Decode(&meta))
	return calls, meta
}
