// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// architectures that a release has, as Go names them.
var architectures = []string{"amd64", "arm64"}

// file is one of a tarball.
type file struct {
	content []byte
	mode    int64
}

// writeTar writes files by name, compressed; all have the same owner and time.
func writeTar(to io.Writer, files map[string]file, made time.Time) error {
	zipped, err := gzip.NewWriterLevel(to, gzip.BestCompression)
	if err != nil {
		return err
	}
	archive := tar.NewWriter(zipped)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		f := files[name]
		header := &tar.Header{Name: name, Mode: f.mode, Size: int64(len(f.content)), ModTime: made, Format: tar.FormatUSTAR}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		if _, err := archive.Write(f.content); err != nil {
			return err
		}
	}
	return errors.Join(archive.Close(), zipped.Close())
}

// writeTarball writes one into the release.
func (r *release) writeTarball(name string, files map[string]file) error {
	var out bytes.Buffer
	if err := writeTar(&out, files, r.made); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	if err := os.WriteFile(filepath.Join(r.out, name), out.Bytes(), 0o644); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// tree adds the files of a folder under a name.
func tree(files map[string]file, dir, under string, mode int64) error {
	root := os.DirFS(dir)
	return fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		files[under+"/"+name] = file{content, mode}
		return nil
	})
}

// tarballs writes one for each architecture: bin, share and the licences, in a folder that
// has the tarball's name.
func (r *release) tarballs() error {
	for _, architecture := range architectures {
		name := fmt.Sprintf("gpu-gadgets-%s-linux-%s", r.version, architecture)
		files := map[string]file{}
		if err := errors.Join(
			tree(files, filepath.Join(r.in, "bin", architecture), name+"/bin", 0o755),
			tree(files, filepath.Join(r.in, "share"), name+"/share", 0o644),
			tree(files, filepath.Join(r.in, "doc"), name+"/share/doc/gpu-gadgets", 0o644),
		); err != nil {
			return fmt.Errorf("read what is built for %s: %w", architecture, err)
		}
		for _, program := range []string{"ig-gpu", "gpu-exporter"} {
			f, ok := files[name+"/bin/"+program]
			if !ok {
				return fmt.Errorf("%s is not built for %s", program, architecture)
			}
			bill, err := billOfProgram(f.content, program, r.version, r.made)
			if err != nil {
				return err
			}
			files[name+"/share/doc/gpu-gadgets/"+program+".cdx.json"] = file{bill, 0o644}
		}
		if err := r.writeTarball(name+".tar.gz", files); err != nil {
			return err
		}
	}
	return nil
}

// chart writes Helm's package again with a time that does not change.
func (r *release) chart() error {
	name := "gpu-gadgets-" + strings.TrimPrefix(r.version, "v") + ".tgz"
	packed, err := os.Open(filepath.Join(r.in, name))
	if err != nil {
		return fmt.Errorf("read the chart: %w", err)
	}
	defer packed.Close()
	unzipped, err := gzip.NewReader(packed)
	if err != nil {
		return fmt.Errorf("read the chart %s: %w", name, err)
	}
	files := map[string]file{}
	for archive := tar.NewReader(unzipped); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("read the chart %s: %w", name, err)
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			return fmt.Errorf("read the chart %s: %w", name, err)
		}
		files[header.Name] = file{content, 0o644}
	}
	return r.writeTarball(name, files)
}

// installer copies install.sh.
func (r *release) installer() error {
	content, err := os.ReadFile(filepath.Join(r.in, "install.sh"))
	if err != nil {
		return fmt.Errorf("read install.sh: %w", err)
	}
	return os.WriteFile(filepath.Join(r.out, "install.sh"), content, 0o755)
}
