// SPDX-License-Identifier: Apache-2.0

package verb

import (
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/cmd/ig-gpu/internal/engine"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
)

// interrupting is an engine whose runs Ctrl-C ends after a while.
type interrupting struct {
	after     time.Duration
	interrupt context.CancelFunc
}

func (i *interrupting) Run(ctx context.Context, _ engine.Run) error {
	if i.after > 0 {
		time.Sleep(i.after)
		i.interrupt()
	}
	<-ctx.Done()
	return nil
}

func explained(t *testing.T, f *facts) string {
	t.Helper()
	var text strings.Builder
	require.NoError(t, writeSentences(&text, compose(f), false))
	return text.String()
}

func TestAnInterruptedWatchSaysHowLongItWas(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	f, err := observe(ctx, Config{Engine: &interrupting{200 * time.Millisecond, interrupt}, ProcFS: procfs(t)}, []uint32{7}, time.Minute)
	require.NoError(t, err)
	require.Less(t, f.watched, 30*time.Second)

	f.watched, f.read = 2*time.Second, 2
	f.waits["run"] = &waiting{frame: "run (serve.py:40)", launches: 1000}
	text := explained(t, f)
	require.Contains(t, text, "; the watch was interrupted after 2s of 1m0s.\n")
	require.Contains(t, text, "1000 kernels and graphs were launched, 500 per second")
	require.Contains(t, text, "Unknown: what grew. The watch was interrupted after 2s of 1m0s.\n")
	require.NotContains(t, text, "busy machine")
}

func TestAProcessThatEndsIsNamedAndNoCommandShowsMoreOfIt(t *testing.T) {
	f := newFacts([]uint32{7, 8}, 10*time.Second)
	f.commands, f.read, f.windows = []string{"python3 a.py", "python3 b.py"}, 10, [2]int{3, 3}
	f.waits["run"] = &waiting{frame: "run (serve.py:40)", launches: 1000}
	f.attached = f.began.Add(time.Second)
	at := func(d time.Duration) time.Time { return f.attached.Add(d) }
	f.finish(at(10*time.Second), false, map[uint32]time.Time{7: at(1700 * time.Millisecond)})
	text := explained(t, f)
	require.Contains(t, text, "7 is python3 a.py; it ended 1.7s into the watch.\n  - 8 is python3 b.py; it was watched for 10s.\n")
	require.Contains(t, text, "100 per second")
	require.Contains(t, text, "more: ig-gpu record 8 -o memory.html")

	f.finish(at(10*time.Second), false, map[uint32]time.Time{7: at(1700 * time.Millisecond), 8: at(2 * time.Second)})
	text = explained(t, f)
	require.Contains(t, text, "500 per second")
	require.Contains(t, text, "Unknown: what grew. The last process ended 2s into the watch of 10s.")
	require.Contains(t, text, "Nothing is held: ")
	require.NotContains(t, text, "more:")
}

func TestTheEndOfAProcessIsNoticed(t *testing.T) {
	short, long := exec.Command("sleep", "0.3"), exec.Command("sleep", "100")
	require.NoError(t, short.Start())
	require.NoError(t, long.Start())
	t.Cleanup(func() {
		_ = long.Process.Kill()
		_, _ = long.Wait(), short.Wait() // until then it is a zombie
	})
	pid := uint32(short.Process.Pid)
	ends := watchEnds("/proc", []uint32{pid, uint32(long.Process.Pid)})
	require.Eventually(t, func() bool { return procmaps.HasEnded("/proc", pid, 0) }, 30*time.Second, 10*time.Millisecond)
	ended := ends()
	require.Len(t, ended, 1)
	require.Contains(t, ended, pid)
}

func TestWhatTheGPUWaitedForIsLeftOutIfThereWasNoGap(t *testing.T) {
	f := newFacts([]uint32{7}, 10*time.Second)
	log := collecting(f)
	f.waits["run"] = &waiting{frame: "run (serve.py:40)", launches: 1000}
	log.Info("what the GPU waited for, an estimate: no time was found in which streams had nothing to do, in 3s")
	require.NotContains(t, strings.ToLower(explained(t, f)), "what the gpu waited for")
	log.Info("what the GPU waited for, an estimate: streams had nothing to do for at least 2s together, in 3s")
	log.Info("        2s        1        2s  before tokenize (x.py:1)")
	require.Contains(t, explained(t, f), "  - What the GPU waited for, an estimate: streams had nothing to do for at least 2s together, in 3s\n            2s ")
}
