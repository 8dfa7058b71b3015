// SPDX-License-Identifier: Apache-2.0

package verb

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/cmd/ig-gpu/internal/targets"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
)

func targetsOf(pids ...uint32) (out []targets.Process) {
	for _, pid := range pids {
		out = append(out, targets.Process{PID: pid})
	}
	return out
}

// calledBy puts a caller around a row.
func calledBy(r profile.Row, function string, line uint32) profile.Row {
	r.Stack = append(r.Stack, stack.Frame{Kind: stack.KindPython, Function: function, File: "/app/serve.py", Line: line})
	return r
}

func TestReportHasTotalsTopAndTree(t *testing.T) {
	path := writeProfile(t, "p.pb.gz", calledBy(held("load", 10, 6<<30, 32), "main", 1), calledBy(held("cache", 20, 2<<30, 4), "main", 2))
	var out bytes.Buffer
	require.NoError(t, report(&out, path, reportOptions{limit: 20, least: 1, output: "text"}))
	for _, want := range []string{
		"GPU memory", "inuse_space    8.00 GiB  shown below",
		"6.00 GiB  75.0 %  6.00 GiB  75.0 % load (serve.py:10)",
		"TREE (callers first)\n  8.00 GiB 100.0 %  (all)\n",
		"  6.00 GiB  75.0 %   main (serve.py:1)\n",
	} {
		require.Contains(t, out.String(), want)
	}

	out.Reset()
	require.NoError(t, report(&out, path, reportOptions{limit: 1, output: "json"}))
	require.JSONEq(t, `{"frame":"load (serve.py:10)","sample":"inuse_space","unit":"bytes","self":6442450944,"total":6442450944}`, out.String())

	require.ErrorContains(t, report(&out, path, reportOptions{kind: "cpu", output: "text"}), "alloc_objects, alloc_space, inuse_objects, inuse_space")
}

func TestReportOfADifferenceIsSigned(t *testing.T) {
	before := writeProfile(t, "b.pb.gz", held("cache", 20, 1<<30, 1), held("load", 10, 3<<30, 1))
	after := writeProfile(t, "a.pb.gz", held("cache", 20, 3<<30, 1), held("load", 10, 2<<30, 1))
	var out bytes.Buffer
	require.NoError(t, report(&out, after, reportOptions{base: before, limit: 20, least: 1, output: "text"}))
	require.Contains(t, out.String(), "inuse_space    1.00 GiB  shown below")
	require.Regexp(t, ` 2\.00 GiB .* cache \(serve\.py:20\)`, out.String())
	require.Regexp(t, `-1\.00 GiB .* load \(serve\.py:10\)`, out.String())
}

// What grew and what shrank are nearly the same: shares are of both, and the caller of both is shown.
func TestSharesOfADifferenceAreOfWhatGrewAndShrank(t *testing.T) {
	grown, shrunk := calledBy(held("cache", 20, 1<<30, 1), "main", 1), calledBy(held("load", 10, 1<<30, 1), "main", 1)
	small := calledBy(held("log", 30, 1<<20, 1), "main", 1)
	for net, want := range map[int64][]string{10 << 20: {
		"  1.00 GiB   50.2 %   1.00 GiB   50.2 % cache (serve.py:20)\n", " -1014 MiB  -49.7 %  -1014 MiB  -49.7 % load (serve.py:10)\n",
		"  11.0 MiB   0.5 %  (all)\n", "  11.0 MiB   0.5 %   main (serve.py:1)\n", "  1.00 GiB  50.2 %    cache (serve.py:20)\n",
		" -1014 MiB -49.7 %    load (serve.py:10)\n", "  1.00 MiB   0.0 %    (1 smaller)\n",
	}, 0: {"  1.00 GiB  50.0 %    cache (serve.py:20)\n", " -1.00 GiB -50.0 %    load (serve.py:10)\n"}} {
		rows := [][]profile.Row{{shrunk}, {grown, small}}
		if rows[1][0].InuseBytes = 1 << 30; net > 0 {
			left := shrunk
			left.InuseBytes = net
			rows[1] = append(rows[1], left)
		}
		var out bytes.Buffer
		require.NoError(t, report(&out, writeProfile(t, "a.pb.gz", rows[1]...), reportOptions{base: writeProfile(t, "b.pb.gz", rows[0]...), limit: 20, least: 1, output: "text"}))
		for _, line := range want {
			require.Contains(t, out.String(), line)
		}
		require.NotContains(t, out.String()[strings.Index(out.String(), "TREE"):], "log (", "1 % of what changed is 20 MiB")
	}
}

// Each layer has values of its own, and those of the other are not among them.
func TestReportOfTensorsAndOfThePeak(t *testing.T) {
	segment, tensor := held("load", 10, 6<<30, 32), held("cache", 20, 2<<30, 4)
	segment.AtPeakBytes, tensor.Kind, tensor.AtPeakBytes = 5<<30, profile.KindTensor, 1<<30
	path := writeProfile(t, "p.pb.gz", segment, tensor)
	var out bytes.Buffer
	require.NoError(t, report(&out, path, reportOptions{limit: 20, least: 1, output: "text"}))
	require.Contains(t, out.String(), "inuse_space    6.00 GiB  shown below")
	require.Contains(t, out.String(), "peak_space     5.00 GiB")
	require.NotContains(t, out.String(), "tensor_")

	out.Reset()
	require.NoError(t, report(&out, path, reportOptions{tensors: true, limit: 20, least: 1, output: "text"}))
	require.Contains(t, out.String(), "tensor_inuse_space    2.00 GiB  shown below")
	require.Regexp(t, `2\.00 GiB +100\.0 % .* cache \(serve\.py:20\)`, out.String())

	out.Reset()
	require.NoError(t, report(&out, path, reportOptions{tensors: true, kind: "tensor_peak_space", output: "json"}))
	require.JSONEq(t, `{"frame":"cache (serve.py:20)","sample":"tensor_peak_space","unit":"bytes","self":1073741824,"total":1073741824}`, out.String())
}

// Every allocation ends in the driver, and many in a library: the line that a person can change is outside of both.
func TestReportNamesTheProgramsOwnLine(t *testing.T) {
	row := calledBy(held("load", 10, 6<<30, 32), "main", 1)
	inside := stack.Stack{
		{Kind: stack.KindNative, Function: "cuMemAlloc_v2", File: "libcuda.so.1"}, {Kind: stack.KindTrampoline, Function: "<interpreter trampoline>"},
		{Kind: stack.KindPython, Function: "to", File: "/usr/lib/python3/dist-packages/torch/cuda.py", Line: 3, Library: true},
	}
	row.Stack = append(inside, row.Stack...)
	var out bytes.Buffer
	require.NoError(t, report(&out, writeProfile(t, "p.pb.gz", row), reportOptions{limit: 20, least: 1, output: "text"}))
	require.Regexp(t, `SELF .*\n +6\.00 GiB +100\.0 % +6\.00 GiB +100\.0 % load \(serve\.py:10\)\n\n`, out.String())
	require.Contains(t, out.String(), "cuMemAlloc_v2", "the tree has all of it")

	calls := profile.New(time.Time{}, []profile.Row{{Stack: row.Stack, Kind: "launch", Values: profile.Values{AllocBytes: 3}}})
	calls.Subject = profile.Calls
	require.Equal(t, "load", topFrames(calls, profile.AllocSpace)[0].Frame.Function)
	calls.Subject = profile.CPU
	require.Equal(t, "cuMemAlloc_v2", topFrames(calls, profile.AllocSpace)[0].Frame.Function, "where a processor is")
}
