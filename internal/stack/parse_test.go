// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLabelsAreReadAsTheyWereWritten(t *testing.T) {
	for label, want := range map[string]Frame{
		"Model.forward (vllm/model.py:12)": {Kind: KindPython, Function: "Model.forward", File: "vllm/model.py", Line: 12, Library: true},
		"f (x.py)":                         {Kind: KindPython, Function: "f", File: "x.py"},
		"<module> (<string>:1)":            {Kind: KindPython, Function: "<module>", File: "<string>", Line: 1},
		"f (line 7)":                       {Kind: KindPython, Function: "f", Line: 7},
		"f (line 0)":                       {Kind: KindNative, Function: "f", File: "line 0"},
		"f (my (old) file.py:3)":           {Kind: KindPython, Function: "f", File: "my (old) file.py", Line: 3},
		"<unreadable>":                     {Kind: KindPython, Function: "<unreadable>"},
		"cuMemAlloc_v2 (libcuda.so.1)":     {Kind: KindNative, Function: "cuMemAlloc_v2", File: "libcuda.so.1"},
		"c10::f(unsigned long, g (*)(int)) (libc10.so)": {Kind: KindNative, Function: "c10::f(unsigned long, g (*)(int))", File: "libc10.so"},
		"operator new(unsigned long)":                   {Kind: KindNative, Function: "operator new(unsigned long)"},
		"0x7f12":                                        {Kind: KindNative, Function: "0x7f12"},
		"[unknown]":                                     {Kind: KindUnknown, Function: "[unknown]"},
		"[truncated]":                                   {Kind: KindUnknown, Function: "[truncated]"},
		"[unexplained]":                                 {Kind: KindUnknown, Function: Unexplained},
		"[cuda context and modules]":                    {Kind: KindUnknown, Function: Context},
		"<interpreter trampoline>":                      {Kind: KindTrampoline, Function: "<interpreter trampoline>"},
		"<autograd>":                                    {Kind: KindTrampoline, Function: "<autograd>"},
		"f (x.py:99999999999)":                          {Kind: KindNative, Function: "f", File: "x.py:99999999999"},
		"":                                              {Kind: KindNative},
		")":                                             {Kind: KindNative, Function: ")"},
		" ()":                                           {Kind: KindNative, Function: " ()"},
	} {
		require.Equal(t, want, ParseLabel(label), label)
	}
}

func TestFoldedStacksComeBack(t *testing.T) {
	s := Stack{
		{Kind: KindNative, Function: "cuMemAlloc_v2", File: "libcuda.so.1"},
		{Kind: KindTrampoline, Function: Trampoline},
		{Kind: KindPython, Function: "Cache.grow", File: "cache.py", Line: 88},
		{Kind: KindPython, Function: "<module>", File: "serve.py", Line: 3},
		{Kind: KindUnknown, Function: Truncated},
	}
	require.Equal(t, s, ParseFolded(s.Folded()))
	require.Equal(t, UnknownStack(), ParseFolded(""))
	require.Equal(t, UnknownStack(), ParseFolded(UnknownStack().Folded()))
}

// FuzzParseFolded: no text is refused, and what was read says the same again.
func FuzzParseFolded(f *testing.F) {
	f.Add("<module> (serve.py:3); Cache.grow (cache.py:88); cuMemAlloc_v2 (libcuda.so.1)")
	f.Add("a (b (c) ; (:1) (); )")
	f.Add("; ;; ")
	f.Fuzz(func(t *testing.T, text string) {
		if text == "" {
			return
		}
		s := ParseFolded(text)
		labels := strings.Split(text, "; ")
		if len(s) != len(labels) {
			t.Fatalf("%d frames of %d labels", len(s), len(labels))
		}
		for i, label := range labels {
			frame := s[len(s)-1-i]
			if again := frame.LabelIn(frame.File); again != printable(label) {
				t.Fatalf("%q is read as %+v, whose label is %q", label, frame, again)
			}
		}
	})
}
