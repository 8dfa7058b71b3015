// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhereIsTheProgramsLineInTheLibrarys(t *testing.T) {
	wait := Frame{Kind: KindPython, Function: "Condition.wait", File: "/usr/lib/python3.11/threading.py", Line: 327, Library: true}
	load := Frame{Kind: KindPython, Function: "Trainer.load_batch", File: "/app/train.py", Line: 18}
	malloc := native("cuMemAlloc_v2", "/usr/lib/libcuda.so.1")
	grow, start := native("KVCache::grow(unsigned long)", "/app/server"), native("_start", "/app/server")
	for _, c := range []struct {
		stack Stack
		want  string
	}{
		{Stack{malloc, wait, load}, "Trainer.load_batch (train.py:18), in Condition.wait (threading.py:327)"},
		{Stack{malloc, load, wait}, "Trainer.load_batch (train.py:18)"},
		{Stack{malloc, wait}, "Condition.wait (threading.py:327)"},
		{Stack{malloc}, "cuMemAlloc_v2 (libcuda.so.1)"},
		{nil, "[unknown]"},
		{Stack{malloc, grow, start}, "KVCache::grow(unsigned long) (server)"},
		{Stack{malloc, grow, wait}, "Condition.wait (threading.py:327)"},
	} {
		require.Equal(t, c.want, c.stack.Where())
	}
	require.Equal(t, load, Stack{malloc, wait, load}.User())
	require.Equal(t, wait, Stack{malloc, wait, load}.Self())
	require.Equal(t, malloc, Stack{malloc}.User())
}

// Without Python every stack ends in the driver: its function is no line of the program.
func TestTheLineOfNativeCodeIsOutsideOfTheDriver(t *testing.T) {
	driver, inside := native("cuMemAlloc_v2", "/usr/lib/libcuda.so.575.57.08"), native("0x1f3a0", "/usr/lib/libcuda.so.575.57.08")
	runtime := native("cudaMalloc", "/usr/local/cuda/lib64/libcudart.so.12")
	static := Stack{native("libcudart_static_8f5b1c0d", "/app/server"), native("__cudart613", "/app/server"), native("cudaMalloc", "/app/server")}
	grow, start := native("KVCache::grow(unsigned long)", "/app/server"), native("_start", "/app/server")
	kernel := Frame{Kind: KindKernel, Function: "add(float*)"}
	for name, c := range map[string]struct {
		stack Stack
		want  Frame
	}{
		"driver":            {Stack{driver, grow, start}, grow},
		"inside of it":      {Stack{inside, driver, grow, start}, grow},
		"runtime":           {Stack{driver, runtime, grow, start}, grow},
		"static runtime":    {append(append(Stack{driver}, static...), grow, start), grow},
		"HIP":               {Stack{native("hipMalloc", "/opt/rocm/lib/libamdhip64.so.6"), grow}, grow},
		"program's wrapper": {Stack{driver, native("cudaTake(unsigned long)", "/app/server"), start}, native("cudaTake(unsigned long)", "/app/server")},
		"stripped":          {Stack{driver, native("0x4f3a1", "/app/server")}, native("0x4f3a1", "/app/server")},
		"generated code":    {Stack{driver, native("0x7f31c0de1000", ""), start}, start},
		"nothing but that":  {Stack{driver, native("0x7f31c0de1000", "")}, driver},
		"cut":               {Stack{driver, {Kind: KindUnknown, Function: NoRules}}, driver},
		"kernel":            {Stack{kernel, native("cuLaunchKernel", driver.File), grow, start}, grow},
		"no call of driver": {Stack{native("futex_wait", "/lib/libc.so.6"), grow}, native("futex_wait", "/lib/libc.so.6")},
		"library":           {Stack{driver, native("cublasSgemm_v2", "/usr/lib/libcublas.so.12"), grow}, native("cublasSgemm_v2", "/usr/lib/libcublas.so.12")},
		"similarly named":   {Stack{native("f", "/usr/lib/libcudadebugger.so.1"), grow}, native("f", "/usr/lib/libcudadebugger.so.1")},
		"Python of a library": {
			Stack{driver, grow, {Kind: KindPython, Function: "f", File: "/usr/lib/python3.12/x.py", Line: 1, Library: true}},
			Frame{Kind: KindPython, Function: "f", File: "/usr/lib/python3.12/x.py", Line: 1, Library: true},
		},
	} {
		require.Equal(t, c.want, c.stack.User(), name)
	}
	require.Equal(t, Stack{grow, start}, Stack{driver, runtime, grow, start}.Own())
	require.Equal(t, driver, Stack{driver, grow}.Self())
}

// TestALibraryIsNoIdentity: what counts as one is a setting of a run, and profiles of two
// runs can be compared.
func TestALibraryIsNoIdentity(t *testing.T) {
	f := Frame{Kind: KindPython, Function: "f", File: "/x.py", Line: 1}
	marked := f
	marked.Library = true
	require.Equal(t, f.Identity(), marked.Identity())
	require.Equal(t, Stack{f}.ID(), Stack{marked}.ID())
}

func TestFramesInsideOfTheProgramsLineAreALibrarys(t *testing.T) {
	s := ParseFolded("main (train.py:60); load_batch (train.py:18); Condition.wait (threading.py:327)")
	require.Equal(t, "Condition.wait (threading.py:327)", s.User().Label(), "the text alone does not tell")
	s.MarkInside("load_batch (train.py:18)")
	require.Equal(t, "load_batch (train.py:18), in Condition.wait (threading.py:327)", s.Where())
	s.MarkInside("nothing of it")
	require.Equal(t, "load_batch (train.py:18)", s.User().Label())
}

func TestLongNamesAreWithoutWhatIsInLongBrackets(t *testing.T) {
	short := "std::vector<at::Tensor>::push_back(at::Tensor const&)"
	require.Equal(t, short, shorten(short))
	for in, want := range map[string]string{
		"at::native::gpu_kernel_impl<at::native::BinaryFunctor<float, float, float, at::native::AddFunctor<float>>>(at::TensorIteratorBase&, at::native::AddFunctor<float> const&)": "at::native::gpu_kernel_impl<…>(…)",
		"torch::autograd::generated::AddmmBackward0::apply(std::vector<at::Tensor, std::allocator<at::Tensor>>&&)":                                                                  "torch::autograd::generated::AddmmBackward0::apply(…)",
		"(anonymous namespace)::launch<float>(int)::{lambda(float)#1}::operator()(std::tuple<std::vector<int>, std::vector<int>>) const":                                            "(anonymous namespace)::launch<float>(int)::{lambda(float)#1}::operator()(…) const",
	} {
		require.Equal(t, want, shorten(in))
		f := Frame{Kind: KindNative, Function: in, File: "/usr/lib/libtorch_cpu.so"}
		require.Equal(t, want+" (libtorch_cpu.so)", f.Label())
		require.Equal(t, in+" (x)", f.LabelIn("x"))
	}
	// Brackets that do not match are operators.
	for _, name := range []string{"operator<<", "operator>", "operator->", "f<g>)", "f(g<)>"} {
		long := "a::" + strings.Repeat("very_long_namespace::", 4) + name + "(std::vector<at::Tensor> const&, std::vector<at::Tensor>)"
		if name != "operator->" {
			require.Equal(t, long, shorten(long))
		} else {
			require.True(t, strings.HasSuffix(shorten(long), "operator->(…)"), shorten(long))
		}
	}
}

func FuzzShorten(f *testing.F) {
	f.Add(strings.Repeat("a<b(c)>", 30))
	f.Add(strings.Repeat("<", 100))
	f.Fuzz(func(t *testing.T, name string) {
		if short := shorten(name); len(short) > len(name) {
			t.Fatalf("%q is longer than %q", short, name)
		}
	})
}
