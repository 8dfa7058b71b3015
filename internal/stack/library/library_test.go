// SPDX-License-Identifier: Apache-2.0

package library

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
)

func TestFilesOfLibraries(t *testing.T) {
	paths, err := Parse("")
	require.NoError(t, err)
	for file, want := range map[string]bool{
		"/usr/lib/python3.11/threading.py":                               true,
		"/usr/lib/python3.13t/threading.py":                              true,
		"/usr/lib64/python3.9/queue.py":                                  true,
		"/opt/conda/lib/python3.10/site-packages/torch/nn/functional.py": true,
		"/usr/lib/python3/dist-packages/torch/_tensor.py":                true,
		"/app/.venv/lib/python3.12/site-packages/vllm/engine.py":         true,
		"…ython3.12/site-packages/vllm/engine.py":                        true,
		"/usr/lib/python312.zip/json/decoder.py":                         true,
		"/usr/local/bin/vllm":                                            true,
		"<frozen importlib._bootstrap>":                                  true,
		"<frozen runpy>":                                                 true,
		"<eval_with_key>.7":                                              true,
		"<attrs generated init a.B>":                                     true,
		"/app/train.py":                                                  false,
		"/home/u/bin/train.py":                                           false,
		"/app/lib/train.py":                                              false,
		"/app/site-packages.py":                                          false,
		"train.py":                                                       false,
		"/tmp/ipykernel_7/1.py":                                          false,
		"<string>":                                                       false,
		"<stdin>":                                                        false,
		"":                                                               false,
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

// Each code object is checked once.
func BenchmarkHas(b *testing.B) {
	paths, err := Parse("")
	require.NoError(b, err)
	for b.Loop() {
		paths.Has("/opt/conda/lib/python3.10/site-packages/torch/nn/modules/transformer.py")
		paths.Has("/workspace/project/src/package/subpackage/module/training/loop/train.py")
	}
}
