// SPDX-License-Identifier: Apache-2.0

package sink

import (
	"bufio"
	"fmt"
	"io"
	"os"

	"github.com/gpu-gadgets/gpu-gadgets/internal/format/file"
	"github.com/gpu-gadgets/gpu-gadgets/internal/format/pprof"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

// titles of flame graphs.
var titles = map[profile.Subject]string{
	profile.Memory: "GPU memory", profile.CPU: "Python on the CPU", profile.Wall: "Python, all threads",
	profile.Calls: "Calls of the GPU's driver",
}

// readBase reads the profile to compare with.
func readBase(path string) (*profile.Profile, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	p, err := pprof.Decode(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return p, nil
}

// finish writes a file and puts it in its place.
func finish(o **file.File, write func(io.Writer) error) error {
	if *o == nil {
		return nil
	}
	defer func() { *o = nil }()
	return (*o).Commit(func(w io.Writer) error {
		buffered := bufio.NewWriterSize(w, 1<<20)
		if err := write(buffered); err != nil {
			return err
		}
		return buffered.Flush()
	})
}
