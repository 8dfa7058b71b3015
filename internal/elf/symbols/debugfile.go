// SPDX-License-Identifier: Apache-2.0

package symbols

import (
	"path"

	"github.com/gpu-gadgets/gpu-gadgets/internal/elf/module"
)

// debugRoot is where distributions put the symbols that they strip, by build id or below
// the library's own directory: what gdb has as debug-file-directory.
const debugRoot = "/usr/lib/debug"

// hostPID is a process whose files are the host's.
const hostPID = 1

// debugFile has symbols that were stripped from a library; module nil: there is none.
type debugFile struct {
	module *module.Module
	reader *recorder
}

func (d debugFile) close() {
	if d.reader != nil {
		d.reader.file.Close()
	}
}

// debugFile finds the separate file with a stripped module's symbols: by its build id in the
// host's files, which no container writes, and in the process's own. It is nil where there is none, or where none is
// needed. The caller closes it.
//
// A file that is not the module's is not used: its names would be wrong ones.
func (r *Resolver) debugFile(pid uint32, library string, m *module.Module) debugFile {
	if m.HasStatic() {
		return debugFile{}
	}
	name, crc, isLinked := m.DebugLink()
	type place struct {
		pid  uint32
		path string
	}
	var places []place
	if id := m.BuildID(); len(id) > 2 {
		byID := path.Join(debugRoot, ".build-id", id[:2], id[2:]+".debug")
		places = append(places, place{hostPID, byID}, place{pid, byID})
	}
	if isLinked {
		dir := path.Dir(path.Clean("/" + library))
		for _, d := range []string{dir, path.Join(dir, ".debug"), path.Join(debugRoot, dir)} {
			if p := path.Join(d, name); p != library {
				places = append(places, place{pid, p})
			}
		}
	}
	for _, p := range places {
		file, err := r.mappings.OpenIn(p.pid, p.path)
		if err != nil {
			continue
		}
		reader := record(file)
		if d, err := module.Open(reader, reader.size); err == nil && d.Describes(m, crc) {
			return debugFile{d, reader}
		}
		file.Close()
	}
	return debugFile{}
}
