// SPDX-License-Identifier: Apache-2.0

package library

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
)

// compiled is the name of a file of torch.compile.
const compiled = "ck5u3zq2g7wxyabcdefghijklmnopqrstuvwxyz234567abcdefg.py"

func TestFilesOfLibraries(t *testing.T) {
	paths, err := Parse("")
	require.NoError(t, err)
	for file, want := range map[string]bool{
		"/usr/lib/python3.11/threading.py":                                                                      true,
		"/usr/lib/python3.13t/threading.py":                                                                     true,
		"/usr/lib64/python3.9/queue.py":                                                                         true,
		"/opt/conda/lib/python3.10/site-packages/torch/nn/functional.py":                                        true,
		"/usr/lib/python3/dist-packages/torch/_tensor.py":                                                       true,
		"/app/.venv/lib/python3.12/site-packages/vllm/engine.py":                                                true,
		"…ython3.12/site-packages/vllm/engine.py":                                                               true,
		"/root/.pex/installed_wheels/0a1b/torch-2.6.0-cp312-cp312-manylinux1_x86_64.whl/torch/nn/functional.py": true,
		"/app/torch.whl.py":                      false,
		"/usr/lib/python312.zip/json/decoder.py": true,
		"/usr/local/bin/vllm":                    true,
		"<frozen importlib._bootstrap>":          true,
		"<frozen runpy>":                         true,
		"<eval_with_key>.7":                      true,
		"<attrs generated init a.B>":             true,
		"/tmp/torchinductor_u/k5/" + compiled:    true,
		"/root/.cache/vllm/torch_compile_cache/0a1b/rank_0_0/inductor_cache/k5/" + compiled: true,
		"…/k5/" + compiled:        true,
		"/app/k5/c" + compiled:    false,
		"/app/source/" + compiled: false,
		"/app/train.py":           false,
		"/home/u/bin/train.py":    false,
		"/app/lib/train.py":       false,
		"/app/site-packages.py":   false,
		"train.py":                false,
		"/tmp/ipykernel_7/1.py":   false,
		"<string>":                false,
		"<stdin>":                 false,
		"":                        false,
	} {
		require.Equal(t, want, paths.Has(file), file)
	}
}

func TestPathsAreAddedOrReplaced(t *testing.T) {
	more, err := Parse("+/opt/framework/")
	require.NoError(t, err)
	require.True(t, more.Has("/opt/framework/a.py"))
	require.True(t, more.Has("/usr/lib/python3.11/queue.py"))
	other, err := Parse("^/opt/")
	require.NoError(t, err)
	require.True(t, other.Has("/opt/a.py"))
	require.False(t, other.Has("/usr/lib/python3.11/queue.py"))
	_, err = Parse("+(")
	require.ErrorContains(t, err, "paths of libraries")
	require.False(t, Paths{}.Has("/usr/lib/python3.11/queue.py"))
}

func TestOnlyPythonIsMarked(t *testing.T) {
	paths, err := Parse("")
	require.NoError(t, err)
	s := stack.Stack{
		{Kind: stack.KindNative, Function: "f", File: "/usr/lib/python3.11/lib-dynload/_queue.so"},
		{Kind: stack.KindPython, Function: "get", File: "/usr/lib/python3.11/queue.py"},
		{Kind: stack.KindPython, Function: "main", File: "/app/train.py", Library: true},
	}
	paths.Mark(s)
	require.Equal(t, []bool{false, true, false}, []bool{s[0].Library, s[1].Library, s[2].Library})
}

// TestLauncherOfACompiledKernelCountsAsALibrary: its file is the same as that of `python -c`.
func TestLauncherOfACompiledKernelCountsAsALibrary(t *testing.T) {
	python := func(function, file string) stack.Frame {
		return stack.Frame{Kind: stack.KindPython, Function: function, File: file, Line: 5}
	}
	launcher, train := python("launcher", "<string>"), python("train", "/app/train.py")
	heuristics := python("CachingAutotuner.run", "/usr/lib/python3/dist-packages/torch/_inductor/runtime/triton_heuristics.py")
	call := python("call", "/tmp/torchinductor_u/k5/"+compiled)
	native := stack.Frame{Kind: stack.KindNative, Function: "f", File: "/usr/lib/python3/dist-packages/torch/_inductor/x.so"}
	short := heuristics
	short.File = stack.ShortFile(short.File)
	cut := heuristics
	cut.File = "…ges/torch/_inductor/runtime/triton_heuristics.py"

	parse := func(text string) Paths {
		paths, err := Parse(text)
		require.NoError(t, err)
		return paths
	}
	for name, c := range map[string]struct {
		paths Paths
		stack stack.Stack
		want  string
	}{
		"compiled":                {parse(""), stack.Stack{launcher, heuristics, call, train}, "train"},
		"with paths added":        {parse("+/opt/"), stack.Stack{launcher, heuristics, call, train}, "train"},
		"native code between":     {parse(""), stack.Stack{launcher, native, heuristics, call, train}, "train"},
		"file of a text":          {parse(""), stack.Stack{launcher, short, train}, "CachingAutotuner.run"},
		"file that was cut":       {parse(""), stack.Stack{launcher, cut, train}, "CachingAutotuner.run"},
		"python -c":               {parse(""), stack.Stack{launcher, train}, "launcher"},
		"no caller":               {parse(""), stack.Stack{launcher}, "launcher"},
		"native caller":           {parse(""), stack.Stack{launcher, native, train}, "launcher"},
		"not its direct caller":   {parse(""), stack.Stack{launcher, train, heuristics}, "launcher"},
		"another function":        {parse(""), stack.Stack{python("f", "<string>"), heuristics, train}, "f"},
		"a file":                  {parse(""), stack.Stack{python("launcher", "/app/x.py"), heuristics, train}, "launcher"},
		"other paths":             {parse("/dist-packages/"), stack.Stack{launcher, heuristics, train}, "launcher"},
		"no paths":                {Paths{}, stack.Stack{launcher, heuristics, train}, "launcher"},
		"called by another of it": {parse(""), stack.Stack{launcher, launcher, heuristics, train}, "launcher"},
	} {
		c.paths.Mark(c.stack)
		require.Equal(t, c.want, c.stack.User().Function, name)
	}
}

// Each code object is checked once.
func BenchmarkHas(b *testing.B) {
	paths, err := Parse("")
	require.NoError(b, err)
	for b.Loop() {
		paths.Has("/opt/conda/lib/python3.10/site-packages/torch/nn/modules/transformer.py")
		paths.Has("/workspace/project/src/package/subpackage/module/training/loop/train.py")
	}
}
