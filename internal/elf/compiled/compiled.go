// SPDX-License-Identifier: Apache-2.0

// Package compiled identifies eBPF objects by what they were compiled from, so that an
// object that make build has compiled is used by tests that need the same one.
package compiled

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// SumExtension is added to the name of an object for the file with its Sum.
const SumExtension = ".sum"

// Source is a program and how it is compiled.
type Source struct {
	Compiler string   // clang
	Path     string   // of the C source
	Include  []string // directories of headers, in order
	// Flags are all others that change the object: -mcpu, -D. Those that are part of each
	// compilation, and warnings, are not among them.
	Flags []string
}

// Sum returns the hash of the compiler's version, the flags and the preprocessed source.
// It does not depend on where files are.
func (s Source) Sum() (string, error) {
	version, err := output(s.Compiler, "--version")
	if err != nil {
		return "", err
	}
	args := append([]string{"-target", "bpf", "-E", "-P"}, s.Flags...)
	for _, dir := range s.Include {
		args = append(args, "-I", dir)
	}
	text, err := output(s.Compiler, append(args, s.Path)...)
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	fmt.Fprintf(sum, "%s\n%q\n", version, s.Flags)
	sum.Write(text)
	return fmt.Sprintf("%x", sum.Sum(nil)), nil
}

// Matches reports whether the object was compiled from a source with this sum. One without
// a file for it does not.
func Matches(object, sum string) bool {
	text, err := os.ReadFile(object + SumExtension)
	return err == nil && string(bytes.TrimSpace(text)) == sum
}

// Identify stores the sum of an object that was compiled from the source.
func (s Source) Identify(object string) error {
	sum, err := s.Sum()
	if err != nil {
		return err
	}
	return os.WriteFile(object+SumExtension, []byte(sum+"\n"), 0o644)
}

// Remove removes an object and its sum, if there are any.
func Remove(object string) error {
	return errors.Join(os.RemoveAll(object), os.RemoveAll(object+SumExtension))
}

func output(program string, args ...string) ([]byte, error) {
	out, err := exec.Command(program, args...).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return nil, fmt.Errorf("%s: %w: %s", program, err, strings.TrimSpace(string(exit.Stderr)))
	}
	return out, err
}
