// SPDX-License-Identifier: Apache-2.0

package terminal

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/job"
)

func pids(j *job.Job) (all []string) {
	for _, pid := range j.PIDs {
		all = append(all, fmt.Sprint(pid))
	}
	return all
}

// TestAVerdictStaysOnTheScreen: repaints of the table below do not erase it, nor does the
// end.
func TestAVerdictStaysOnTheScreen(t *testing.T) {
	t.Parallel()
	for _, s := range []size{small, large} {
		t.Run(fmt.Sprintf("%dx%d", s.columns, s.lines), func(t *testing.T) {
			t.Parallel()
			j := job.Start(t, "training", "--story", "training", "--stop", "broadcast")
			v := start(t, s, nil, append([]string{"hangs", "--hang", "4s"}, pids(j)...)...)
			v.wait("attached to all ranks", `attached to 3 processes`)
			j.Begin()
			const verdict = `dead: rank 1 of 3 is(.|\n)*stopped`
			text := v.wait("the verdict", verdict)
			requireFits(t, s, text)
			for range 3 {
				text = v.waitOther("a repaint", text)
			}
			require.Regexp(t, verdict, text)
			// A busy machine takes seconds to read the stack of the rank.
			text = v.wait("where the rank is", `1/3 (.|\n)*dead +Rank\.`)
			require.Regexp(t, verdict, text)
			require.Regexp(t, `\(train\.py:\d+\)`, text)
			requireFits(t, s, text)
			if s == small {
				v.picture("hangs")
			}
			v.press("q")
			v.waitEnd()
			v.wait("the verdict behind the end", verdict)
		})
	}
}

// TestAJobThatAlreadyHangsIsJudgedWithinSeconds: no rank calls anything any more.
func TestAJobThatAlreadyHangsIsJudgedWithinSeconds(t *testing.T) {
	t.Parallel()
	j := job.Start(t, "late", "--story", "training", "--stop", "broadcast")
	j.Begin()
	stopped := func() bool {
		status, err := exec.Command("ps", "-o", "state=", "-p", fmt.Sprint(j.PIDs[1])).Output()
		return err == nil && strings.HasPrefix(strings.TrimSpace(string(status)), "T")
	}
	require.Eventually(t, stopped, waitLimit, 50*time.Millisecond, "the rank stops")

	v := start(t, large, nil, append([]string{"hangs"}, pids(j)...)...)
	v.wait("attached", `attached to 3 processes`)
	began := time.Now()
	text := v.wait("the judgement", `attached to 3 ranks (.|\n)*Probably missing: process `+fmt.Sprint(j.PIDs[1])+` python3, stopped, at Rank\.stop_before`)
	t.Logf("judged %v after attach:\n%s", time.Since(began), text)
	require.Regexp(t, `2 are inside a wait: processes \d+, \d+ at CUDA\.__call__ \(nccl\.py:\d+\)`, words(text))
	require.Contains(t, text, "Uncertain")
	v.press("q")
	v.waitEnd()
}

// states are those of a job's processes, as ps(1) has them.
func states(j *job.Job) string {
	all, err := exec.Command("ps", "-o", "pid,ppid,state,time,wchan:30,args", "-p", strings.Join(pids(j), ",")).CombinedOutput()
	return fmt.Sprintf("%s(%v)\n", all, err)
}

// TestHangsAsJSONIsOneObjectPerVerdict and nothing else on standard output.
func TestHangsAsJSONIsOneObjectPerVerdict(t *testing.T) {
	t.Parallel()
	j := job.Start(t, "late", "--story", "training", "--stop", "broadcast")
	j.Begin()
	// One that hangs ends with the stacks of its goroutines.
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	cmd := exec.CommandContext(ctx, program(t), append([]string{"hangs", "-o", "json"}, pids(j)...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGQUIT) }
	cmd.WaitDelay = 10 * time.Second
	var messages bytes.Buffer
	cmd.Stderr = &messages
	pipe, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		left := states(j)
		cancel()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("%s%s", left, messages.String())
		}
	})
	out := bufio.NewReader(pipe)
	first, err := out.ReadString('\n')
	require.NoError(t, err)
	require.NoError(t, cmd.Process.Signal(unix.SIGINT))
	rest, err := io.ReadAll(out)
	require.NoError(t, err)
	require.NoError(t, cmd.Wait())
	lines := strings.Split(strings.TrimSpace(first+string(rest)), "\n")
	require.NotEmpty(t, lines)
	for _, line := range lines {
		var verdict struct{ Event, Reason, Text string }
		require.NoError(t, json.Unmarshal([]byte(line), &verdict), line)
		require.NotEmpty(t, verdict.Text)
		require.NotEmpty(t, verdict.Reason)
	}
}
