// SPDX-License-Identifier: Apache-2.0

package pystack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cilium/ebpf"

	"github.com/gpu-gadgets/gpu-gadgets/internal/ig"
)

// interpretersMap has the interpreters of the processes that were read, which are the selected ones: bpf/python/runtime/process.h.
const interpretersMap = "python_by_process"

// statusUnsupported is PYTHON_UNSUPPORTED of bpf/python/runtime/state.h.
const statusUnsupported = 3

// ErrNoPython means that there is nothing to dump.
var ErrNoPython = errors.New("no Python interpreter in the selected processes (CPython 3.7 to 3.15)")

// unsupportedError is ErrNoPython where there are interpreters, of these versions.
type unsupportedError []string

func (e unsupportedError) Error() string {
	are := "is"
	if len(e) > 1 {
		are = "are"
	}
	return fmt.Sprintf("CPython %s in the selected processes %s not supported (3.7 to 3.15 are, of free-threaded builds 3.13 only)",
		strings.Join(e, ", "), are)
}

func (unsupportedError) Unwrap() error { return ErrNoPython }

// noPython says why a dump has no threads.
func noPython(gc ig.Context) error {
	versions, err := unsupported(gc)
	switch {
	case err != nil:
		return fmt.Errorf("%w; look for unsupported ones: %w", ErrNoPython, err)
	case len(versions) > 0:
		return unsupportedError(versions)
	}
	return ErrNoPython
}

// unsupported are the versions of interpreters that were found, and are not supported, each once.
func unsupported(gc ig.Context) ([]string, error) {
	interpreters, err := ig.Map(gc, interpretersMap)
	if err != nil {
		return nil, err
	}
	spec, err := ig.MapSpec(gc, interpretersMap)
	if err != nil {
		return nil, err
	}
	var status, version int
	if err := ig.Offsets(spec.Value, ig.At(&status, "status", 4), ig.At(&version, "version", 4)); err != nil {
		return nil, err
	}
	var found []uint32
	var key, value []byte
	entries := interpreters.Iterate()
	for entries.Next(&key, &value) {
		if binary.NativeEndian.Uint32(value[status:]) == statusUnsupported {
			found = append(found, binary.NativeEndian.Uint32(value[version:])>>16)
		}
	}
	// An entry that goes while it is read may end the walk early.
	if err := entries.Err(); err != nil && !errors.Is(err, ebpf.ErrIterationAborted) {
		return nil, fmt.Errorf("read %s: %w", interpretersMap, err)
	}
	return minors(found), nil
}

// minors are versions without their last parts, by number, each once.
func minors(versions []uint32) []string {
	slices.Sort(versions)
	var texts []string
	for _, v := range slices.Compact(versions) {
		texts = append(texts, fmt.Sprintf("%d.%d", v>>8, v&0xff))
	}
	return texts
}
