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
// standard library, installed packages, the scripts that installers put in front of a
// package (bin/vllm, bin/torchrun), frozen modules, and code that well-known packages
// generate. `<string>`, `<stdin>` and the cells of a notebook are the program's own.
const Default = `/(site|dist)-packages/|/lib(64)?/python3(\.\d+t?)?/|/python3\d+\.zip/|/s?bin/[^/.]+$|` +
	`^<(frozen |eval_with_key>|attrs generated |decorator-gen-|__array_function__ )`

// Paths are those of libraries. The zero value has none. It is safe for concurrent use.
type Paths struct{ expression *regexp.Regexp }

// Parse takes a regular expression that files of libraries match somewhere in their
// path; one that begins with "+" is in addition to Default. Empty is the default.
func Parse(paths string) (Paths, error) {
	more, isMore := strings.CutPrefix(paths, "+")
	switch {
	case paths == "" || isMore && more == "":
		paths = Default
	case isMore:
		paths = Default + "|" + more
	}
	re, err := regexp.Compile(paths)
	if err != nil {
		return Paths{}, fmt.Errorf("paths of libraries: %w", err)
	}
	return Paths{re}, nil
}

// Has reports whether a file is a library's.
func (p Paths) Has(file string) bool { return p.expression != nil && p.expression.MatchString(file) }

// Mark sets Library in the Python frames of a stack, in place.
func (p Paths) Mark(s stack.Stack) {
	for i := range s {
		s[i].Library = s[i].Kind == stack.KindPython && p.Has(s[i].File)
	}
}
