// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func python(function, file string, line uint32) Frame {
	return Frame{Kind: KindPython, Function: function, File: file, Line: line}
}

func native(function, file string) Frame {
	return Frame{Kind: KindNative, Function: function, File: file}
}

func TestLabel(t *testing.T) {
	for _, c := range []struct {
		frame Frame
		want  string
	}{
		{python("f", "/app/x.py", 3), "f (x.py:3)"},
		{python("Model.forward", "/usr/lib/python3.12/site-packages/vllm/v1/model.py", 12), "Model.forward (vllm/v1/model.py:12)"},
		{python("Linear.forward", "/root/.pex/installed_wheels/0a1b/torch-2.6.0-cp312-cp312-linux_x86_64.whl/torch/nn/modules/linear.py", 125),
			"Linear.forward (torch/nn/modules/linear.py:125)"},
		{native("at::empty", "/root/.pex/installed_wheels/0a1b/torch-2.6.0-cp312-cp312-linux_x86_64.whl/torch/lib/libc10.so"), "at::empty (libc10.so)"},
		{python("run", "/usr/lib/python3.12/asyncio/runners.py", 195), "run (asyncio/runners.py:195)"},
		{python("<lambda>", "", 7), "<lambda> (line 7)"},
		{python("f", "<string>", 1), "f (<string>:1)"},
		{native("cuMemAlloc_v2", "/usr/lib/libcuda.so.1"), "cuMemAlloc_v2 (libcuda.so.1)"},
		{native("at::empty", "/usr/lib/python3/site-packages/torch/lib/libc10.so"), "at::empty (libc10.so)"},
		{Frame{Kind: KindTrampoline, Function: Trampoline}, "<interpreter trampoline>"},
		{python("\x1b[31mred\n", "/x.py", 1), "\uFFFD[31mred\uFFFD (x.py:1)"},
	} {
		require.Equal(t, c.want, c.frame.Label())
	}
}

func TestFoldedIsRootFirstAndCanBeSplit(t *testing.T) {
	s := Stack{python("leaf;drop", "/a.py", 2), python("<module>", "/a.py", 9)}
	require.Equal(t, "<module> (a.py:9); leaf:drop (a.py:2)", s.Folded())
	require.Equal(t, "", Stack(nil).Folded())
}

func TestSelfIsTheInnermostPythonFrame(t *testing.T) {
	require.Equal(t, "f", Stack{native("cuMemAlloc_v2", ""), python("f", "", 1), python("g", "", 1)}.Self().Function)
	require.Equal(t, "cuMemAlloc_v2", Stack{native("cuMemAlloc_v2", ""), native("main", "")}.Self().Function)
	require.Equal(t, Unknown, Stack(nil).Self().Function)
}

func TestIDIsTheContent(t *testing.T) {
	base := Stack{python("f", "/a.py", 1), python("g", "/a.py", 2)}
	require.Equal(t, base.ID(), Stack{python("f", "/a.py", 1), python("g", "/a.py", 2)}.ID())
	// The value itself is part of the contract: it must not change between
	// processes, restarts or releases.
	require.Equal(t, uint64(0x20d45c79abd9f847), base.ID())

	for name, other := range map[string]Stack{
		"order":            {base[1], base[0]},
		"line":             {python("f", "/a.py", 3), base[1]},
		"file":             {python("f", "/b.py", 1), base[1]},
		"function":         {python("h", "/a.py", 1), base[1]},
		"boundary of text": {python("f/", "a.py", 1), base[1]},
		"kind":             {{Kind: KindNative, Function: "f", File: "/a.py", Line: 1}, base[1]},
		"address":          {{Kind: KindPython, Function: "f", File: "/a.py", Line: 1, Address: 1}, base[1]},
		"prefix":           base[:1],
		"empty":            nil,
	} {
		require.NotEqual(t, base.ID(), other.ID(), name)
	}
}

func TestIDIgnoresTheBuildOfANamedFunction(t *testing.T) {
	v1, v2 := native("at::empty", "libc10.so"), native("at::empty", "libc10.so")
	v1.BuildID, v2.BuildID = "aa", "bb"
	require.Equal(t, Stack{v1}.ID(), Stack{v2}.ID())
	v1.Address, v2.Address = 0x40, 0x40
	require.NotEqual(t, Stack{v1}.ID(), Stack{v2}.ID())
}

func TestKindSurvivesItsWord(t *testing.T) {
	for k := KindUnknown; k <= KindTrampoline; k++ {
		require.Equal(t, k, ParseKind(k.String()))
	}
	require.Equal(t, KindUnknown, ParseKind("perl"))
}

func TestJoin(t *testing.T) {
	n1, n2, interp := native("cuMemAlloc_v2", ""), native("at::empty", ""), native("_PyEval_EvalFrameDefault", "libpython")
	p1, p2 := python("f", "", 1), python("<module>", "", 9)
	tramp := Frame{Kind: KindTrampoline, Function: Trampoline}
	isThird := func(i int) bool { return i >= 2 }

	for name, c := range map[string]struct {
		parts Parts
		want  Stack
	}{
		"native ends at the interpreter": {
			Parts{Native: []Frame{n1, n2, interp, n1}, Python: []Frame{p1, p2}, IsInterpreter: isThird},
			Stack{n1, n2, tramp, p1, p2},
		},
		"interpreter unknown": {
			Parts{Native: []Frame{n1, n2}, Python: []Frame{p1}},
			Stack{n1, n2, tramp, p1},
		},
		"native only keeps the interpreter": {
			Parts{Native: []Frame{n1, n2, interp}, IsInterpreter: isThird},
			Stack{n1, n2, interp},
		},
		"python only": {Parts{Python: []Frame{p1, p2}}, Stack{p1, p2}},
		"leaf in the interpreter needs no trampoline": {
			Parts{Native: []Frame{interp}, Python: []Frame{p1}, IsInterpreter: func(int) bool { return true }},
			Stack{p1},
		},
		"python cut at the root": {Parts{Python: []Frame{p1}, Flags: PythonTruncated}, Stack{p1, truncated()}},
		"native cut before the interpreter": {
			Parts{Native: []Frame{n1}, Python: []Frame{p1}, Flags: NativeTruncated},
			Stack{n1, truncated(), tramp, p1},
		},
		"native cut after the interpreter": {
			Parts{Native: []Frame{n1, n2, interp}, Python: []Frame{p1}, Flags: NativeTruncated, IsInterpreter: isThird},
			Stack{n1, n2, tramp, p1},
		},
		"of a thread without Python for another one": {
			Parts{Native: []Frame{n1, n2}, Python: []Frame{Asker(), p1, p2}, IsInterpreter: isThird},
			Stack{n1, n2, Asker(), p1, p2},
		},
		"of a thread with Python for another one": {
			Parts{Native: []Frame{n1, n2, interp}, Python: []Frame{p1, Asker(), p2}, IsInterpreter: isThird},
			Stack{n1, n2, tramp, p1, Asker(), p2},
		},
		"native frames between Python frames": {
			Parts{Native: []Frame{n1, n2, n1}, Python: []Frame{p1, p2, p1}, Runs: []Run{{1, 1}, {3, 1}}, IsInterpreter: isThird},
			Stack{n1, tramp, p1, n2, tramp, p2, p1},
		},
		"and at the leaf Python": {
			Parts{Native: []Frame{n1}, Python: []Frame{p1, p2}, Runs: []Run{{0, 1}}},
			Stack{p1, n1, tramp, p2},
		},
		"a caller in the interpreter is left out": {
			Parts{Native: []Frame{n1, n2, interp, n2}, Python: []Frame{p1, p2}, Runs: []Run{{3, 1}}, IsInterpreter: func(i int) bool { return i == 2 }},
			Stack{n1, n2, tramp, p1, n2, tramp, p2},
		},
		"cut between Python frames": {
			Parts{Native: []Frame{n1, n2}, Python: []Frame{p1, p2}, Runs: []Run{{1, 1}}, Flags: NativeNoRules},
			Stack{n1, tramp, p1, n2, Frame{Kind: KindUnknown, Function: NoRules}, tramp, p2},
		},
		"cut in the interpreter between Python frames": {
			Parts{Native: []Frame{n1}, Python: []Frame{p1, p2}, Runs: []Run{{1, 1}}, Flags: NativeNotLoaded},
			Stack{n1, tramp, p1, Frame{Kind: KindUnknown, Function: NotLoaded}, tramp, p2},
		},
		"of a thread with runs for another one": {
			Parts{Native: []Frame{n1, n2}, Python: []Frame{p1, Asker(), p2}, Runs: []Run{{1, 1}}},
			Stack{n1, tramp, p1, n2, Asker(), p2},
		},
		"what called frames that are left out is, too": {
			Parts{Native: []Frame{n1, n2}, Python: []Frame{p1, Asker(), p2}, Runs: []Run{{1, 2}}},
			Stack{n1, tramp, p1, Asker(), p2},
		},
		"nothing": {Parts{}, UnknownStack()},
	} {
		require.Equal(t, c.want, Join(c.parts), name)
	}
}

func TestJoinCopiesItsInput(t *testing.T) {
	in := make([]Frame, 1, 8)
	in[0] = native("a", "")
	s := Join(Parts{Native: in})
	in[0].Function = "b"
	require.Equal(t, "a", s[0].Function)
}

func TestPlainIsPrintableASCII(t *testing.T) {
	for length := range 20 {
		for at := range length {
			for c := range 256 {
				b := []byte("abcdefghijklmnopqrst")[:length]
				b[at] = byte(c)
				require.Equal(t, c >= 0x20 && c < 0x7f, isPlain(string(b)), "%q", b)
			}
		}
	}
	require.True(t, isPlain(""))
}
