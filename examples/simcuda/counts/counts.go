// SPDX-License-Identifier: Apache-2.0

// Package counts reads how often the functions of the simulated driver were called: the
// files that it keeps in the directory SIMCUDA_COUNTS, one for each process.
package counts

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// A row is struct counts_row of examples/simcuda/counts.h.
const (
	nameBytes = 56
	rowBytes  = nameBytes + 8
)

// Counts has the calls so far, by exported function, without those that were never
// called.
type Counts map[string]uint64

// Read reads the counts of a process, which may be living.
func Read(dir string, pid int) (Counts, error) {
	content, err := os.ReadFile(filepath.Join(dir, strconv.Itoa(pid)+".counts"))
	if err != nil {
		return nil, fmt.Errorf("read driver calls: %w", err)
	}
	if len(content)%rowBytes != 0 {
		return nil, fmt.Errorf("read driver calls of process %d: %d bytes are no whole rows", pid, len(content))
	}
	counts := Counts{}
	for row := content; len(row) > 0; row = row[rowBytes:] {
		if n := binary.NativeEndian.Uint64(row[nameBytes:]); n > 0 {
			name, _, _ := bytes.Cut(row[:nameBytes], []byte{0})
			counts[string(name)] = n
		}
	}
	return counts, nil
}

// Since returns the calls after `before` was read.
func (c Counts) Since(before Counts) Counts {
	later := Counts{}
	for name, n := range c {
		if n > before[name] {
			later[name] = n - before[name]
		}
	}
	return later
}
