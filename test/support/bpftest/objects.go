// SPDX-License-Identifier: Apache-2.0

package bpftest

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/internal/elf/compiled"
)

// unused is how long an object stays in the store after its last use.
const unused = 7 * 24 * time.Hour

// compilerVersion is the compiler's version: objects of another one are not used.
var compilerVersion = sync.OnceValues(func() ([]byte, error) {
	return output(Compiler, "--version")
})

// cached returns the object of a source, from build/objects if the same text has been
// compiled before: a gadget takes seconds to compile, and most tests load one. The name of
// an object is the hash of the preprocessed source, with its headers and their paths, the
// flags and the compiler's version.
//
// Test binaries share the store. One that compiles an object holds the lock of its name,
// and the others wait; a file that has its final name is complete.
func cached(source string, args []string) (string, error) {
	// The names of source files are in the object: they must not depend on the caller.
	source, err := filepath.Abs(source)
	if err != nil {
		return "", err
	}
	store, err := objectStore()
	if err != nil {
		return "", err
	}
	name, err := contentName(source, args)
	if err != nil {
		return "", err
	}
	object := filepath.Join(store, name+".o")
	unlock, err := lock(filepath.Join(store, name+".lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	now := time.Now()
	if file, err := os.Stat(object); err == nil {
		// Not each time: go test treats a file with another time as another input.
		if file.ModTime().Before(now.Add(-24 * time.Hour)) {
			err = os.Chtimes(object, now, now)
		}
		return object, err
	}
	removeUnused(store, now.Add(-unused))
	partial := object + ".partial"
	if _, err := output(Compiler, append(args, "-c", source, "-o", partial)...); err != nil {
		return "", err
	}
	return object, os.Rename(partial, object)
}

// built returns the object that make build has compiled from the same source, or "": it
// has the same code, without DWARF.
func built(from compiled.Source, root, goarch string) (object string, err error) {
	objects, err := filepath.Glob(filepath.Join(root, "build", "bpf", "*", goarch+".bpf.o"))
	if err != nil || len(objects) == 0 {
		return "", err
	}
	sum, err := from.Sum()
	if err != nil {
		return "", err
	}
	for _, object := range objects {
		if compiled.Matches(object, sum) {
			return object, nil
		}
	}
	return "", nil
}

// objectStore is the directory of compiled objects. Each user has one: the tests of make
// test run as root, and a later go test may not.
func objectStore() (string, error) {
	dirs, err := includes()
	if err != nil {
		return "", err
	}
	root := filepath.Dir(dirs[0])
	store := filepath.Join(root, "build", "objects", strconv.Itoa(os.Geteuid()))
	return store, os.MkdirAll(store, 0o755)
}

// contentName is the hash of all that the object depends on.
func contentName(source string, args []string) (string, error) {
	version, err := compilerVersion()
	if err != nil {
		return "", err
	}
	text, err := output(Compiler, append(args[:len(args):len(args)], "-E", source)...)
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	fmt.Fprintf(sum, "%s\n%q\n", version, args)
	sum.Write(text)
	return fmt.Sprintf("%x", sum.Sum(nil)), nil
}

// lock waits until no other process has the file's lock. The file stays: a lock on one
// that has been removed meanwhile would not exclude others.
func lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
	}
	return func() { f.Close() }, nil
}

// removeUnused removes the objects that were last used before that time. An error is no
// matter: the next compilation tries again.
func removeUnused(store string, before time.Time) {
	objects, _ := filepath.Glob(filepath.Join(store, "*.o"))
	for _, object := range objects {
		if s, err := os.Stat(object); err == nil && s.ModTime().Before(before) {
			_ = os.Remove(object)
		}
	}
}

// output runs a program; its error has the program's output.
func output(name string, args ...string) ([]byte, error) {
	cmd := exec.Command(name, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, stderr.Bytes())
	}
	return out, nil
}
