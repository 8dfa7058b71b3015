// SPDX-License-Identifier: Apache-2.0

package compare

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Frame is one Python call: the qualified name as Python gives it, the file name
// of its code object, the line.
type Frame struct {
	Function string
	File     string
	Line     uint32
}

// Caller is a tag of one process.
type Caller struct {
	PID        uint32
	StartTicks uint64
	Image      uint32 // counts the execs of a process
	Tag        uint64
}

// Truth knows the Python stack, leaf first, of each tag.
type Truth map[Caller][]Frame

// ReadTruth reads all truth files (*.truth) of a directory.
func ReadTruth(dir string) (Truth, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.truth"))
	if err != nil {
		return nil, fmt.Errorf("list truth files: %w", err)
	}
	truth := Truth{}
	for _, path := range paths {
		if err := truth.readFile(path); err != nil {
			return nil, fmt.Errorf("read truth %s: %w", path, err)
		}
	}
	return truth, nil
}

func (t Truth) readFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return t.Read(f)
}

// Read adds the lines of one truth file, as test/gadgets/exact/truth.py writes them.
func (t Truth) Read(r io.Reader) error {
	d := json.NewDecoder(bufio.NewReader(r))
	for {
		var line struct {
			PID    uint32               `json:"pid"`
			Start  uint64               `json:"start"`
			Image  uint32               `json:"image"`
			Tag    uint64               `json:"tag"`
			Frames [][3]json.RawMessage `json:"frames"`
		}
		if err := d.Decode(&line); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		stack := make([]Frame, len(line.Frames))
		for i, f := range line.Frames {
			for j, to := range []any{&stack[i].Function, &stack[i].File, &stack[i].Line} {
				if err := json.Unmarshal(f[j], to); err != nil {
					return fmt.Errorf("tag %d, frame %d: %w", line.Tag, i, err)
				}
			}
		}
		t[Caller{line.PID, line.Start, line.Image, line.Tag}] = stack
	}
}
