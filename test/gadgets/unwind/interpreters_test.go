// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"debug/elf"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// interpreter is one CPython under test: a line of pythons.sh.
type interpreter struct {
	name   string // of the subtest
	minor  int    // of 3.x
	build  string // static, shared or free-threaded
	source string // version, and where it is from
	root   string // to be run in this directory as root; "-": in ours
	path   string // executable, in that root
	prefix []string
	loader string // dynamic linker, if it is run directly
}

// newest is the youngest minor version that the unwinder knows, and oldest the
// oldest.
const oldest, newest = 7, 15

// command runs the interpreter with arguments; `dirs` have the same paths in its
// root as here.
func (i interpreter) command(dirs []string, arguments ...string) *exec.Cmd {
	words := append([]string(nil), i.prefix...)
	if i.root != "-" {
		words = append(words, "unshare", "-m", "testdata/inroot.sh", i.root)
		words = append(append(words, dirs...), "--")
	}
	if i.loader != "" {
		words = append(words, i.loader)
	}
	words = append(append(words, i.path), arguments...)
	cmd := exec.Command(words[0], words[1:]...)
	if i.build == "free-threaded" {
		// Modules that do not support this would switch the lock on again.
		cmd.Env = append(os.Environ(), "PYTHON_GIL=0")
	}
	return cmd
}

// pidNamespace is the same interpreter in its own PID namespace.
func (i interpreter) pidNamespace() interpreter {
	i.prefix = []string{"unshare", "--pid", "--fork"}
	return i
}

// byLoader is the same interpreter, started as an argument of the dynamic linker that
// its file names.
func (i interpreter) byLoader(t testing.TB) interpreter {
	t.Helper()
	file, err := elf.Open(filepath.Join(strings.TrimPrefix(i.root, "-"), i.path))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, p := range file.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		name, err := io.ReadAll(p.Open())
		if err != nil {
			t.Fatal(err)
		}
		i.loader = strings.TrimRight(string(name), "\x00")
	}
	if i.loader == "" {
		t.Fatalf("%s names no dynamic linker", i.path)
	}
	return i
}

// can reports whether the interpreter can import a module.
func (i interpreter) can(module string) bool {
	return i.command(nil, "-c", "import "+module).Run() == nil
}

// interpreters are those that $PYTHONS lists, or else those of this machine.
var interpreters = sync.OnceValues(func() ([]interpreter, error) {
	var lines []byte
	var err error
	if list := os.Getenv("PYTHONS"); list != "" {
		lines, err = os.ReadFile(list)
	} else {
		cmd := exec.Command("./pythons.sh")
		cmd.Stderr = os.Stderr
		lines, err = cmd.Output()
	}
	if err != nil {
		return nil, fmt.Errorf("list the interpreters: %w", err)
	}
	var found []interpreter
	for line := range strings.Lines(string(lines)) {
		field := strings.Split(strings.TrimSpace(line), "\t")
		if len(field) != 6 {
			return nil, fmt.Errorf("list the interpreters: %q has %d fields, want 6", line, len(field))
		}
		i := interpreter{name: field[0], build: field[2], source: field[3], root: field[4], path: field[5]}
		if i.minor, err = strconv.Atoi(field[1]); err != nil || i.minor < oldest || i.minor > newest {
			return nil, fmt.Errorf("list the interpreters: %q: minor version %q", line, field[1])
		}
		found = append(found, i)
	}
	return found, nil
})

// TestInterpreters logs the interpreters of the other tests. pythons.sh fails if there is
// not even the python3 of the distribution.
func TestInterpreters(t *testing.T) {
	found, err := interpreters()
	if err != nil {
		t.Fatal(err)
	}
	if len(found) == 0 {
		t.Fatal("no interpreter to test with")
	}
	for _, i := range found {
		t.Logf("tested: %-20s %-13s %s", i.name, i.build, i.source)
	}
	for minor := oldest; minor <= newest; minor++ {
		if !hasMinor(found, minor) {
			t.Logf("not tested: 3.%d, not on this machine (make test-python fetches more)", minor)
		}
	}
}

func hasMinor(list []interpreter, minor int) bool {
	for _, i := range list {
		if i.minor == minor {
			return true
		}
	}
	return false
}

// libpython is the shared library of the same version and build, or "".
func (i interpreter) libpython() string {
	name := fmt.Sprintf("libpython3.%d", i.minor)
	switch {
	case i.build == "free-threaded":
		name += "t"
	case i.minor == 7:
		name += "m"
	}
	for _, dir := range []string{"../lib", "../lib/x86_64-linux-gnu", "../lib/aarch64-linux-gnu"} {
		path := filepath.Join(filepath.Dir(i.path), dir, name+".so.1.0")
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return ""
}
