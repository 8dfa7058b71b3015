// SPDX-License-Identifier: Apache-2.0

package spans

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/format/pprof"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/labels"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/simulated"
)

// did has the work of a span, as the workload counted it and as rows have it.
type did struct {
	Trace  string `json:"trace"`
	Route  string `json:"route"`
	Launch int64  `json:"launch"`
	Wait   int64  `json:"wait"`
	Copy   int64  `json:"copy"`
	Bytes  int64  `json:"bytes"`
}

const longestRoute = 63 // bytes that are read of an attribute

// traceCalls runs the workload of calls under ig-gpu, and returns what it said and what the
// newest rows say, by span.
func traceCalls(t *testing.T, spansOfThread string, arguments ...string) (want, have map[string]did, stderr string) {
	t.Helper()
	p := run(t, "python3", "testdata/calls.py", simulated.DriverCopy(t), publisher(t), "4", spansOfThread)
	out, wait := igGPU(t, "cuda_kernel", p.PID(), append([]string{"-o", "calls:json,attachments:json"}, arguments...)...)
	require.Eventually(t, func() bool {
		text, err := os.ReadFile(out)
		return err == nil && bytes.Contains(text, []byte(`"status":"attached"`))
	}, waitLimit, 50*time.Millisecond, "nothing is attached")
	time.Sleep(1500 * time.Millisecond) // the names of attributes are read again once a second
	p.next()
	require.NoError(t, json.Unmarshal([]byte(p.wait("done")), &want))
	p.next()
	p.Wait()
	stderr, err := wait()
	require.NoError(t, err, stderr)
	return want, newestCalls(t, out), stderr
}

// newestCalls adds up the last state of each row of calls, by span.
func newestCalls(t *testing.T, file string) map[string]did {
	t.Helper()
	type line struct {
		Operation, Labels string
		Calls, Bytes      int64
		Span              string `json:"span_id"`
		Trace             string `json:"trace_id"`
		StackID           uint64 `json:"stack_id"`
		Row               uint64
	}
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	type id struct {
		stack, row uint64
		span       string
	}
	newest := map[id]line{}
	decoder := json.NewDecoder(bytes.NewReader(text))
	for decoder.More() {
		var raw json.RawMessage
		require.NoError(t, decoder.Decode(&raw))
		var many []line
		if raw[0] == '{' {
			var one line
			require.NoError(t, json.Unmarshal(raw, &one))
			many = []line{one}
		} else {
			require.NoError(t, json.Unmarshal(raw, &many))
		}
		for _, l := range many {
			if l.Operation != "" {
				newest[id{l.StackID, l.Row, l.Span}] = l
			}
		}
	}
	sums := map[string]did{}
	for _, l := range newest {
		d := sums[l.Span]
		switch l.Operation {
		case "launch":
			d.Launch += l.Calls
		case "wait":
			d.Wait += l.Calls
		case "copy":
			d.Copy += l.Calls
			d.Bytes += l.Bytes
		default:
			continue
		}
		for _, pair := range labels.Decode(l.Labels) {
			if pair[0] == "request" {
				d.Route = pair[1]
			}
		}
		d.Trace = l.Trace
		sums[l.Span] = d
	}
	return sums
}

// Every launch, copy and wait belongs to the span that its thread was in, with the span's trace and
// the requested attribute.
func TestCallsBelongToTheirSpans(t *testing.T) {
	want, have, stderr := traceCalls(t, calls(1000), "--spans", "--labels", "request=span:http.route")
	for span, w := range want {
		if len(w.Route) > longestRoute {
			w.Route = w.Route[:longestRoute]
		}
		require.Equal(t, w, have[span], "span %q", span)
	}
	require.Len(t, have, len(want))
	require.Greater(t, len(want), 1000)
	require.Contains(t, stderr, "publishes its spans by")
}

// Without --spans all is in the rows of stacks, which have no label.
func TestCallsHaveNoSpansUnlessRequested(t *testing.T) {
	want, have, _ := traceCalls(t, "50")
	var sum did
	for _, w := range want {
		sum.Launch, sum.Wait, sum.Copy, sum.Bytes = sum.Launch+w.Launch, sum.Wait+w.Wait, sum.Copy+w.Copy, sum.Bytes+w.Bytes
	}
	require.Equal(t, map[string]did{"": sum}, have)
}

// More kinds of request than a label may have are "other", and their number is reported.
func TestKindsOfRequestsAreBounded(t *testing.T) {
	want, have, stderr := traceCalls(t, "50", "--spans", "--labels", "request=span:http.route", "--label-values", "2")
	values, others := map[string]int{}, 0
	for span, h := range have {
		values[h.Route]++
		require.Equal(t, want[span].Launch, h.Launch)
		if h.Route == labels.Other {
			others++
		}
	}
	require.Len(t, values, 4, "%v: none, two and other", values)
	require.Positive(t, others)
	require.Contains(t, stderr, "Label request has more than 2 values")
	require.Regexp(t, `Label request: \d+ processes, spans or stacks have the value other`, stderr)
}

func TestLabelsOfSpansNeedSpans(t *testing.T) {
	for text, arguments := range map[string][]string{
		"needs --spans": {"--labels", "request=span:http.route"},
		"at most 2":     {"--spans", "--labels", "a=span:a,b=span:b,c=span:c"},
	} {
		_, wait := igGPU(t, "cuda_kernel", os.Getpid(), append(arguments, "--timeout", "2")...)
		stderr, err := wait()
		require.Error(t, err)
		require.Contains(t, stderr, text)
	}
}

// A server whose requests differ by 100 times in cost: bytes held and time on the GPU, by kind of
// request and by trace, against what each request took.
func TestBytesAndGPUTimeByKindOfRequest(t *testing.T) {
	const chats, summaries, block = 30, 4, 512 << 10
	shim, err := filepath.Abs("../../../build/simcupti/libparcagpucupti.so")
	require.NoError(t, err)
	t.Setenv("CUDA_INJECTION64_PATH", shim)
	t.Setenv("LD_LIBRARY_PATH", abs(t, "../../../build/simcuda")+":"+abs(t, "../../../build/simtorch"))
	p := run(t, "python3", "../../../examples/torch/requests.py", "--spans")
	t.Setenv("CUDA_INJECTION64_PATH", "")
	t.Setenv("LD_LIBRARY_PATH", "")

	dir := t.TempDir()
	files := map[string]string{"cuda_alloc": filepath.Join(dir, "memory.pb.gz"), "cuda_kernel": filepath.Join(dir, "kernels.pb.gz")}
	more := map[string][]string{"cuda_alloc": {"--torch", "on"}, "cuda_kernel": {"--device-times"}}
	var stop []func()
	for gadget, file := range files {
		out, interrupt, wait := startIGGPU(t, gadget, p.PID(), append(more[gadget], "--spans", "--pprof-out", file,
			"--labels", "request=span:http.route,trace=span:trace_id", "--label-values", "1000")...)
		require.Eventually(t, func() bool {
			text, err := os.ReadFile(out)
			return err == nil && strings.Count(string(text), `"status":"attached"`) >= 2 // the driver, and PyTorch or CUPTI
		}, waitLimit, 50*time.Millisecond, "nothing is attached")
		stop = append(stop, func() {
			interrupt()
			stderr, err := wait()
			require.NoError(t, err, stderr)
		})
	}
	time.Sleep(1500 * time.Millisecond)
	kinds := map[string]string{} // by trace
	ask := func(kind string, times int) {
		for range times {
			p.Say("%s", kind)
			answer, trace, _ := strings.Cut(p.Line(), " ")
			require.Equal(t, "done", answer)
			kinds[trace] = "/" + kind
		}
	}
	ask("chat", chats)
	ask("summary", summaries)
	require.Len(t, kinds, chats+summaries)
	time.Sleep(2 * time.Second) // CUPTI reports late, and rows are read once a second
	for _, stop := range stop {
		stop()
	}

	byKind, byTrace := costs(t, files)
	const kernel = 1000 + 32*100 // ns: examples/simcupti, for 32 blocks
	of := func(blocks, held int64) cost {
		return cost{blocks * block, held * block, blocks, blocks, blocks * kernel}
	}
	require.Equal(t, of(chats, 0), byKind["/chat"])
	require.Equal(t, of(100*summaries, 100*summaries), byKind["/summary"])
	for trace, kind := range kinds {
		want := of(1, 0)
		if kind == "/summary" {
			want = of(100, 100)
		}
		require.Equal(t, want, byTrace[trace], "%s %s", kind, trace)
	}
}

// cost has the memory and the work of requests.
type cost struct{ taken, held, launches, kernels, gpu int64 }

// costs adds up profiles by kind of request, and by trace.
func costs(t *testing.T, files map[string]string) (byKind, byTrace map[string]cost) {
	t.Helper()
	byKind, byTrace = map[string]cost{}, map[string]cost{}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		require.NoError(t, err)
		decoded, err := pprof.Decode(bytes.NewReader(raw))
		require.NoError(t, err)
		for _, r := range decoded.Rows {
			of := map[string]string{}
			for _, pair := range labels.Decode(r.Process.Labels) {
				of[pair[0]] = pair[1]
			}
			add := func(c cost) cost {
				if r.Kind == "tensor" {
					c.taken += r.AllocBytes
					c.held += r.InuseBytes
				}
				c.launches, c.kernels, c.gpu = c.launches+r.Launches, c.kernels+r.Kernels, c.gpu+r.DeviceNanoseconds
				return c
			}
			byKind[of["request"]] = add(byKind[of["request"]])
			byTrace[of["trace"]] = add(byTrace[of["trace"]])
		}
	}
	return byKind, byTrace
}

func abs(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	require.NoError(t, err)
	return path
}
