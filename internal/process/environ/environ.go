// SPDX-License-Identifier: Apache-2.0

// Package environ reads the environment that a process was started with.
package environ

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
)

// maxBytes is above the size of programs' environments; a process may have megabytes.
const maxBytes = 1 << 20

// Environment is NAME=VALUE entries, each with a zero at its end.
type Environment []byte

// Read reads that of a process below procfs, such as /proc: at most 1 MiB.
func Read(procfs string, pid uint32) (Environment, error) {
	f, err := os.Open(filepath.Join(procfs, strconv.FormatUint(uint64(pid), 10), "environ"))
	if err != nil {
		return nil, fmt.Errorf("read the environment of process %d: %w", pid, err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxBytes))
	if err != nil {
		return nil, fmt.Errorf("read the environment of process %d: %w", pid, err)
	}
	return b, nil
}

// Values are those of a variable of a variable, in order: programs differ in which one counts.
func (e Environment) Values(name string) (values []string) {
	for entry := range bytes.SplitSeq(e, []byte{0}) {
		if value, ok := bytes.CutPrefix(entry, []byte(name+"=")); ok {
			values = append(values, string(value))
		}
	}
	return values
}
