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
	"time"

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

// Who took the difference: a request, a mark, a request, a mark, and the comparison
// names the line that keeps 26 MiB on one device and 14 MiB on the other, of what the
// pool has taken from the driver for activations, too.
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

// Blocks from before attach are a row as long as they are in use, and with it the rows add
// up to what PyTorch itself says; in files, too.
func TestTensorsFromBeforeAttachAreARow(t *testing.T) {
	const mib = 1 << 20
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
					for device := range 2 { // an estimate, of what is left of the whole
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

// What a request of a while ago still holds is old, of the pool's blocks and of the
// driver's segments; what a new one has taken is not.
func TestOldBlocksAreToldFromNewOnes(t *testing.T) {
	s := startServer(t, "serve.py")
	pid := s.PID()
	r := start(t, "--pid", fmt.Sprint(pid), "--older-than", "10s")
	r.waitTorch(s)
	frame := lineOf(t, "serve.py", "KVCache.append", "self.blocks[request] =")
	const mib = 1 << 20
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

// Out of memory with half of it unused: the event says whose tensors hold the rest, and
// that the pool is cut up.
func TestAnOOMOfThePoolSaysThatItIsCutUp(t *testing.T) {
	s := startServer(t, "fragments.py", "SIMCUDA_CAPACITY=1GiB")
	r := start(t, "--pid", fmt.Sprint(s.PID()))
	r.waitTorch(s)
	s.Say("")
	s.Expect("out of memory")
	batch := lineOf(t, "fragments.py", "next_batch", "return malloc(0, 64")
	var event oom
	r.wait("the event", func() bool {
		for _, o := range r.ooms {
			if o.API == "torch" && o.Frame == batch {
				event = o
			}
		}
		return event.API != ""
	})
	require.EqualValues(t, 64<<20, event.RequestedBytes)
	require.Greater(t, event.PoolReservedBytes, uint64(900<<20))
	require.Greater(t, event.PoolReservedBytes-event.PoolAllocatedBytes, uint64(300<<20))
	require.Equal(t, event.PoolAllocatedBytes, event.InuseBytes+1<<20, "all tensors but the one from before attach")
	require.Contains(t, event.Holders, lineOf(t, "fragments.py", "cache_sequences", "pointer = malloc(0, size"))
	require.Equal(t, event.PoolReservedBytes-event.PoolAllocatedBytes, event.PoolPiecesBytes)
	require.Zero(t, event.PoolKeptBytes+event.PoolApartBytes)
	code, _ := r.interrupt()
	require.Zero(t, code, r.errors())
	require.Regexp(t, `torch of 64\.0 MiB at next_batch .*fragments\.py:\d+\).*PyTorch's pool uses .* in pieces that are too small \(fragmentation`, r.errors())
	t.Log(r.errors())
}

// Whose segments are expandable already is not told to make them so: here each piece of
// memory has a sequence in it, which no addresses mend.
func TestAnOOMWithExpandableSegmentsDoesNotProposeThem(t *testing.T) {
	s := startServer(t, "fragments.py", "SIMCUDA_CAPACITY=1GiB", "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True")
	pid := s.PID()
	r := start(t, "--pid", fmt.Sprint(pid))
	r.waitTorch(s)
	s.Say("")
	s.Expect("out of memory")
	cache := lineOf(t, "fragments.py", "cache_sequences", "pointer = malloc(0, size")
	r.waitRows("both layers", pid, func(rows []row) bool {
		kinds := map[string]uint64{}
		for _, x := range rows {
			if x.Frame == cache {
				kinds[x.Kind] += x.InuseBytes
			}
		}
		// The pieces that the sequences needed, and the long ones that are left.
		return len(kinds) == 2 && kinds["vmm"] > 900<<20 && kinds["tensor"] > 500<<20 && kinds["tensor"] < kinds["vmm"]-300<<20
	})
	code, _ := r.interrupt()
	require.Zero(t, code, r.errors())
	require.Empty(t, r.lost())
	require.Regexp(t, `cuMemCreate of 20\.0 MiB at next_batch`, r.errors())
	require.Regexp(t, `torch of 64\.0 MiB at next_batch .* in pieces that are too small, though expandable segments are on`, r.errors())
	require.NotContains(t, r.errors(), "are made for that")
	t.Log(r.errors())
}

// What CUDA graphs keep of a private pool is the driver's row of the line that captured
// them, with no tensor in it, until the graphs are gone; an OOM meanwhile says so.
func TestMemoryOfGraphsIsReservedAndNotHeld(t *testing.T) {
	s := startServer(t, "graphs.py", "SIMCUDA_CAPACITY=1GiB")
	pid := s.PID()
	r := start(t, "--pid", fmt.Sprint(pid))
	r.waitTorch(s)
	captured := lineOf(t, "graphs.py", "capture.<locals>.<listcomp>", "held = [malloc")
	const mib = 1 << 20
	kept := func(device uint64) func([]row) bool {
		return func(rows []row) bool {
			kinds := map[string]uint64{}
			for _, x := range rows {
				if x.Frame == captured || strings.HasPrefix(x.Frame, "capture (") { // 3.12 has no frame for a comprehension
					kinds[x.Kind] += x.InuseBytes
				}
			}
			tensors, seen := kinds["tensor"]
			return seen && tensors == 0 && kinds["device"] == device
		}
	}
	s.Say("")
	s.Expect("out of memory")
	r.waitRows("what the graphs keep", pid, kept(6*96*mib))
	var event oom
	r.wait("the event", func() bool {
		for _, o := range r.ooms {
			if o.API == "torch" {
				event = o
			}
		}
		return event.API != ""
	})
	require.EqualValues(t, 500*mib, event.RequestedBytes)
	require.EqualValues(t, 1*mib, event.PoolAllocatedBytes)
	require.EqualValues(t, (2+6*96)*mib, event.PoolReservedBytes)
	require.Empty(t, event.Holders, "no tensor is held but the one from before attach")
	s.Say("")
	s.Expect("fits")
	r.waitRows("nothing is kept", pid, kept(0))
	code, _ := r.interrupt()
	require.Zero(t, code, r.errors())
	require.Empty(t, r.lost())
	require.EqualValues(t, 6*96*mib, event.PoolKeptBytes)
	require.EqualValues(t, 1*mib, event.PoolPiecesBytes, "beside the tensor from before attach")
	require.Zero(t, event.PoolApartBytes)
	require.Regexp(t, `PyTorch's pool uses 1\.00 MiB of its 578 MiB: 576 MiB are kept in segments without a tensor, as CUDA graphs`, r.errors())
	require.NotContains(t, r.errors(), "fragmentation")
	t.Log(r.errors())
}

// Without a pool of PyTorch's own, the tensors are the driver's rows of the same lines; that
// kind tensor is empty is explained.
func TestPyTorchWithoutAPoolIsSaidAndSeen(t *testing.T) {
	s := startServer(t, "serve.py", "PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync")
	pid := s.PID()
	r := start(t, "--pid", fmt.Sprint(pid))
	r.waitTorch(s)
	s.request()
	frame := lineOf(t, "serve.py", "KVCache.append", "self.blocks[request] =")
	rows := r.waitRows("the cache", pid, func(rows []row) bool {
		var sum uint64
		for _, x := range rows {
			if x.Frame == frame && x.Kind == "pool" {
				sum += x.InuseBytes
			}
		}
		return sum == (26+14)<<20
	})
	for _, x := range rows {
		require.NotEqual(t, "tensor", x.Kind)
	}
	code, _ := r.interrupt()
	require.Zero(t, code, r.errors())
	require.Contains(t, r.errors(), fmt.Sprintf("torch: PyTorch of python3[%d] runs with backend:cudaMallocAsync: it has no pool of its own", pid))
}

// Another allocator in the place of PyTorch's is said when it has asked the driver often
// enough, and not before; never of a process whose pool tells.
func TestAnotherAllocatorInThePlaceOfPyTorchsIsSaid(t *testing.T) {
	s := startServer(t, "testdata/replaced.py")
	pid := s.PID()
	r := start(t, "--pid", fmt.Sprint(pid))
	r.waitTorch(s)
	asked := func(objects uint64) {
		t.Helper()
		r.waitRows("its tensors", pid, func(rows []row) bool {
			var n uint64
			for _, x := range rows {
				n += x.InuseObjects
			}
			return n == objects
		})
	}
	said := func() bool { return strings.Contains(r.errors(), "has reported no tensor") }
	for range 3 {
		s.request()
	}
	asked(30)
	require.Never(t, said, 3*time.Second, 100*time.Millisecond, "these are too few to tell")
	s.request()
	asked(40)
	require.Eventually(t, said, 20*time.Second, 100*time.Millisecond)
	require.Contains(t, r.errors(), fmt.Sprintf("torch: PyTorch of python3[%d] has reported no tensor during 40 allocations from the driver", pid))
	code, _ := r.interrupt()
	require.Zero(t, code, r.errors())

	s = startServer(t, "serve.py")
	r = start(t, "--pid", fmt.Sprint(s.PID()))
	r.waitTorch(s)
	for range 40 {
		s.request()
	}
	r.waitRows("its tensors", s.PID(), func(rows []row) bool {
		var segments uint64
		for _, x := range rows {
			if x.Kind != "tensor" {
				segments += x.AllocObjects
			}
		}
		return segments > quietAfter
	})
	require.Never(t, said, 3*time.Second, 100*time.Millisecond)
	code, _ = r.interrupt()
	require.Zero(t, code, r.errors())
}

// quietAfter is that of package torch.
const quietAfter = 32

// How much of what nobody uses a tensor could use: of a pool that sequences have cut up,
// nothing for a batch, and all for another short sequence; the same with expandable
// segments, where neighbouring pieces are one.
func TestAPoolSaysWhatWouldFit(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		size, settings string
		fits           func(pool) bool
	}{
		{"64MiB", "", func(p pool) bool { return p.Fits == "0.0 %" && p.UsableBytes == 0 && p.LargestBytes == 4*mib }},
		{"4MiB", "", func(p pool) bool {
			return p.UsableBytes > 400*mib && p.UsableBytes <= p.CachedBytes && p.LargestBytes == 4*mib
		}},
		{"4MiB", "expandable_segments:True", func(p pool) bool { return p.UsableBytes > 400*mib && p.UsableBytes <= p.CachedBytes }},
		{"64MiB", "expandable_segments:True", func(p pool) bool { return p.Fits == "0.0 %" && p.UsableBytes == 0 && p.LargestBytes == 4*mib }},
	} {
		t.Run(c.size+" "+c.settings, func(t *testing.T) {
			s := startServer(t, "fragments.py", "SIMCUDA_CAPACITY=1GiB", "PYTORCH_CUDA_ALLOC_CONF="+c.settings)
			r := start(t, "--pid", fmt.Sprint(s.PID()), "--torch", "on", "--fits", c.size)
			r.waitTorch(s)
			s.Say("")
			s.Expect("out of memory")
			var last pool
			defer func() { t.Logf("%+v", last) }()
			r.wait("the pool", func() bool {
				for _, p := range r.pools {
					if last = p; p.CachedBytes > 400*mib && c.fits(p) {
						return true
					}
				}
				return false
			})
			code, _ := r.interrupt()
			require.Zero(t, code, r.errors())
		})
	}
	out, err := exec.Command(program(t), "run", "cuda_alloc", "--fits", "much", "--timeout", "1").CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "--fits: want a size such as 64MiB")
}

func TestColumnsOfParametersAreInTheTables(t *testing.T) {
	out, err := exec.Command(program(t), "run", "cuda_alloc", "--host", "--older-than", "10m", "--fits", "1MiB",
		"--timeout", "2", "-o", "pools:columns").CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Regexp(t, `(?m)^COMM .* INUSE .* OLD *$`, string(out))
	require.Regexp(t, `(?m)^COMM .* UNUSED .* ?FITS .*RESERVED`, string(out))
}
