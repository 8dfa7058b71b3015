// SPDX-License-Identifier: Apache-2.0

// Package library distinguishes the program's own code from the standard library and from
// installed packages, by the paths of its files.
package library

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
)

// Default matches the files of Python whose code is not the program's own: the
// standard library, installed packages, wheels that a PEX has unpacked, the scripts that installers put in front of a
// package (bin/vllm, bin/torchrun), frozen modules, and code that well-known packages
// generate. `<string>`, `<stdin>` and the cells of a notebook are the program's own.
//
// torch.compile writes its code to files whose name is a hash, in a directory that is named by two letters of
// it (code_hash and get_path in torch/_inductor/codecache.py, PyTorch 2.6).
const Default = `/(site|dist)-packages/|\.whl/|/lib(64)?/python3(\.\d+t?)?/|/python3\d+\.zip/|/s?bin/[^/.]+$|` +
	`/[a-z2-7]{2}/c[a-z2-7]{51}\.py$|` +
	`^<(frozen |eval_with_key>|attrs generated |decorator-gen-|__array_function__ )`

// Paths are those of libraries. The zero value has none. It is safe for concurrent use.
type Paths struct {
	expression *regexp.Regexp
	// hasDefault: Default is part of the expression.
	hasDefault bool
}

// Parse takes a regular expression that files of libraries match somewhere in their
// path; one that begins with "+" is in addition to Default. Empty is the default.
func Parse(paths string) (Paths, error) {
	more, isMore := strings.CutPrefix(paths, "+")
	hasDefault := isMore || paths == ""
	switch {
	case hasDefault && more == "":
		paths = Default
	case hasDefault:
		paths = Default + "|" + more
	}
	re, err := regexp.Compile(paths)
	if err != nil {
		return Paths{}, fmt.Errorf("paths of libraries: %w", err)
	}
	return Paths{re, hasDefault}, nil
}

// Has reports whether a file is a library's.
func (p Paths) Has(file string) bool { return p.expression != nil && p.expression.MatchString(file) }

// Mark sets Library in the Python frames of a stack, in place.
func (p Paths) Mark(s stack.Stack) {
	for i := range s {
		s[i].Library = s[i].Kind == stack.KindPython && p.Has(s[i].File)
	}
	p.MarkByCaller(s)
}

// inductor is the package of torch.compile's code generator.
const inductor = "/torch/_inductor/"

// MarkByCaller sets Library in the Python frames that only their caller shows to be a library's, in place. frames are
// leaf first. torch.compile launches every Triton kernel from a function of a text that it executes
// (torch/_inductor/runtime/triton_heuristics.py), whose file is that of `python -c`.
func (p Paths) MarkByCaller(frames []stack.Frame) {
	if !p.hasDefault {
		return
	}
	var callee *stack.Frame
	for i := range frames {
		f := &frames[i]
		if f.Kind != stack.KindPython {
			continue
		}
		// stack.ShortFile leaves out what is in front of the package.
		if callee != nil && strings.Contains("/"+f.File, inductor) {
			callee.Library = true
		}
		if callee = nil; f.Function == "launcher" && f.File == "<string>" {
			callee = f
		}
	}
}
