// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/loopback"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/simulated"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject"
)

// server is a program of examples/torch on the simulated driver and allocator.
type server struct{ *subject.Process }

func startServer(t testing.TB, script string, env ...string) *server {
	t.Helper()
	if !strings.Contains(script, "/") {
		script = "../../../examples/torch/" + script
	}
	cmd := exec.Command("python3", script)
	libraries := filepath.Dir(simulated.Driver(t)) + ":" + simulated.Build(t, "simtorch")
	cmd.Env = append(append(os.Environ(), "LD_LIBRARY_PATH="+libraries), env...)
	s := &server{subject.Start(t, cmd)}
	s.Expect("ready")
	return s
}

func (s *server) request() { s.say("") }

func (s *server) say(line string) {
	s.Say("%s", line)
	s.Expect("done")
}

// waitTorch waits until driver and allocator of the server are probed.
func (r *run) waitTorch(s *server) {
	r.t.Helper()
	r.wait("both libraries", func() bool {
		found := map[string]bool{}
		for _, a := range r.attachments {
			if a.PID == uint32(s.PID()) && a.Status == "attached" {
				found[filepath.Base(a.Path)] = true
			}
		}
		return found["libcuda.so.1"] && found["libc10.so"]
	})
}

// lineOf is the frame of the line of an example that has the text.
func lineOf(t testing.TB, script, function, text string) string {
	t.Helper()
	source, err := os.ReadFile("../../../examples/torch/" + script)
	require.NoError(t, err)
	before, _, found := strings.Cut(string(source), text)
	require.True(t, found, text)
	return fmt.Sprintf("%s (%s:%d)", function, script, 1+strings.Count(before, "\n"))
}

// The source of a difference: a request, a mark, a request, a mark, and the comparison
// names the line that keeps 26 MiB on one device and 14 MiB on the other, including the
// pool's segments for activations.
func TestDiffOfMarksNamesTheLineThatKeepsTensors(t *testing.T) {
	s := startServer(t, "serve.py")
	marks := filepath.Join(t.TempDir(), "m")
	address := loopback.FreeAddress(t)
	r := start(t, "--pid", fmt.Sprint(s.PID()), "--mark-out", marks, "--mark-listen", address)
	r.waitTorch(s)
	s.request()
	require.NoError(t, r.cmd.Process.Signal(syscall.SIGUSR1))
	eventually(t, "a mark", func() bool {
		_, err := os.Stat(marks + ".1.pb.gz")
		return err == nil
	})
	s.request()
	answer, err := http.Post("http://"+address+"/mark", "", nil)
	require.NoError(t, err)
	defer answer.Body.Close()
	path, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, answer.StatusCode, "%s", path)
	require.Equal(t, marks+".2.pb.gz\n", string(path))
	// An event of OpenTelemetry's, as an application logs it.
	event := `{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"eventName":"gpu_gadgets.mark"}]}]}]}`
	accepted, err := http.Post("http://"+address+"/v1/logs", "application/json", strings.NewReader(event))
	require.NoError(t, err)
	require.NoError(t, accepted.Body.Close())
	require.Equal(t, http.StatusOK, accepted.StatusCode)
	eventually(t, "the event's mark", func() bool {
		_, err := os.Stat(marks + ".3.pb.gz")
		return err == nil
	})
	code, _ := r.interrupt()
	require.Zero(t, code, r.errors())
	require.Empty(t, r.lost())

	out, err := exec.Command(program(t), "diff", marks+".1.pb.gz", marks+".2.pb.gz").CombinedOutput()
	require.NoError(t, err, "%s", out)
	t.Logf("%s", out)
	text := regexp.MustCompile(`[ \t]+`).ReplaceAllString(string(out), " ")
	frame := lineOf(t, "serve.py", "KVCache.append", "self.blocks[request] =")
	require.Contains(t, text, " +26.0 MiB 0 B 26.0 MiB 52.0 MiB +1 0 tensor "+frame, string(out))
	require.Contains(t, text, " +14.0 MiB 0 B 14.0 MiB 28.0 MiB +1 1 tensor "+frame, string(out))
	require.Contains(t, text, " 0 B 51.0 MiB 0 B 0 B +0 0 tensor Engine.forward", "activations are given back")
	require.Regexp(t, ` \+40\.0 MiB 102 MiB 40\.0 MiB 80\.0 MiB \+2 \(all that tensors hold of it\)`, text)
}

// Blocks from before attach have a row while they are in use, with which the rows add up
// to PyTorch's own count; in files, too.
func TestTensorsFromBeforeAttachAreARow(t *testing.T) {
	for _, c := range []struct {
		name, sampling string
		exact          bool
	}{{"every block", "0", true}, {"sampled", "64KiB", false}} {
		t.Run(c.name, func(t *testing.T) {
			s := startServer(t, "serve.py")
			s.request()
			file := filepath.Join(t.TempDir(), "out.pb.gz")
			r := start(t, "--pid", fmt.Sprint(s.PID()), "--sample-bytes", c.sampling, "--pprof-out", file)
			r.waitTorch(s)
			// before is true when rows of both devices have so much of before and of all.
			before := func(left, kept [2]uint64) func([]row) bool {
				return func(rows []row) bool {
					var old, all [2]uint64
					for _, x := range rows {
						if x.Kind != "tensor" {
							continue
						}
						all[x.Device] += x.InuseBytes
						if x.Frame == "[before attach]" {
							old[x.Device] = x.InuseBytes
						}
					}
					if c.exact {
						return old == left && all == [2]uint64{left[0] + kept[0], left[1] + kept[1]}
					}
					for device := range 2 { // an estimate, of the remainder
						all, want := float64(all[device]), float64(left[device]+kept[device])
						if old[device] == 0 || all < 0.97*want || all > 1.03*want {
							return false
						}
					}
					return true
				}
			}
			pid := s.PID()
			s.request()
			r.waitRows("of weights and of the first request", pid, before([2]uint64{186 * mib, 174 * mib}, [2]uint64{26 * mib, 14 * mib}))
			s.say("offload")
			r.waitRows("without a layer", pid, before([2]uint64{146 * mib, 134 * mib}, [2]uint64{26 * mib, 14 * mib}))
			code, _ := r.interrupt()
			require.Zero(t, code, r.errors())
			out, err := exec.Command("go", "tool", "pprof", "-sample_index=tensor_inuse_space", "-top", file).CombinedOutput()
			require.NoError(t, err, "%s", out)
			require.Regexp(t, `\[before attach\]`, string(out))
			if c.exact {
				require.Regexp(t, `280MB +[0-9.]+% +[0-9.]+% +280MB +[0-9.]+% +\[before attach\]`, string(out))
			}
		})
	}
}

// Memory that an earlier request still holds is old, in the pool's blocks and in the
// driver's segments; that of a new one is not.
func TestOldBlocksAreDistinguishedFromNewOnes(t *testing.T) {
	s := startServer(t, "serve.py")
	pid := s.PID()
	r := start(t, "--pid", fmt.Sprint(pid), "--older-than", "10s")
	r.waitTorch(s)
	frame := lineOf(t, "serve.py", "KVCache.append", "self.blocks[request] =")
	seen := func(inuse, old, objects uint64) func([]row) bool {
		return func(rows []row) bool {
			found := 0
			for _, x := range rows {
				if x.Frame == frame && x.Device <= 0 && x.InuseBytes == inuse*mib && x.OldBytes == old*mib && x.OldObjects == objects {
					found++
				}
			}
			return found == 2 // of kind tensor on device 0, and of kind device
		}
	}
	s.request()
	r.waitRows("new blocks", pid, seen(26, 0, 0))
	r.waitRows("blocks that have become old", pid, seen(26, 26, 1))
	s.request()
	r.waitRows("new ones beside old ones", pid, seen(52, 26, 1))
	r.waitRows("all old", pid, seen(52, 52, 2))
	code, _ := r.interrupt()
	require.Zero(t, code, r.errors())

	out, err := exec.Command(program(t), "run", "cuda_alloc", "--older-than", "-10s", "--timeout", "1").CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "--older-than: want a duration such as 10m")
}

// A leak in a closure, found in marks that were set by time.
func TestLeaksNamesTheLineOfAClosure(t *testing.T) {
	s := startServer(t, "closure.py")
	marks := filepath.Join(t.TempDir(), "m")
	r := start(t, "--pid", fmt.Sprint(s.PID()), "--mark-out", marks, "--mark-every", "2s")
	r.waitTorch(s)
	eventually(t, "seven marks", func() bool {
		_, err := os.Stat(marks + ".7.pb.gz")
		return err == nil
	})
	code, _ := r.interrupt()
	require.Zero(t, code, r.errors())
	// The first may be of the time before the probes.
	var files []string
	for n := 2; n <= 7; n++ {
		files = append(files, fmt.Sprintf("%s.%d.pb.gz", marks, n))
	}
	out, err := exec.Command(program(t), append([]string{"leaks"}, files...)...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	t.Logf("%s", out)
	var tensors []string
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, " tensor ") {
			tensors = append(tensors, line)
		}
	}
	require.Len(t, tensors, 1, "only the closure's tensors grow")
	require.Contains(t, tensors[0], " tensor "+lineOf(t, "closure.py", "make_hook", "loss = malloc"))
}
