// SPDX-License-Identifier: Apache-2.0

package sink

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// output is a file that appears complete or not at all: it is written under
// another name and renamed. Created when the recording starts, so that a path
// that cannot be written is an error then and not when the data is there.
type output struct {
	path string
	file *os.File
	// direct: the path leads to a device or a pipe, which a rename would
	// replace; it is written as it is.
	direct bool
}

func create(path string) (*output, error) {
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		return nil, fmt.Errorf("%s is a directory", path)
	case err == nil && !info.Mode().IsRegular():
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return nil, err
		}
		return &output{path: path, file: f, direct: true}, nil
	case err == nil:
		// The file that a link leads to is replaced, not the link.
		if path, err = filepath.EvalSymlinks(path); err != nil {
			return nil, err
		}
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*.tmp")
	if err != nil {
		return nil, err
	}
	// Who ran the recording shares it: not only root, who has to run it,
	// should be able to open the file.
	if err := f.Chmod(0o644); err != nil {
		_ = f.Close()
		_ = os.Remove(f.Name())
		return nil, err
	}
	return &output{path: path, file: f}, nil
}

// commit writes the file and gives it its name. After it, or after discard, the
// output is used up.
func (o *output) commit(write func(io.Writer) error) error {
	err := write(o.file)
	if err != nil {
		o.discard()
		return fmt.Errorf("write %s: %w", o.path, err)
	}
	if err := o.file.Close(); err != nil {
		o.remove()
		return fmt.Errorf("write %s: %w", o.path, err)
	}
	if o.direct {
		return nil
	}
	if err := os.Rename(o.file.Name(), o.path); err != nil {
		o.remove()
		return err
	}
	return nil
}

// discard leaves what was at the path before.
func (o *output) discard() {
	_ = o.file.Close()
	o.remove()
}

func (o *output) remove() {
	if !o.direct {
		_ = os.Remove(o.file.Name())
	}
}
