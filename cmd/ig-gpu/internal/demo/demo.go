// SPDX-License-Identifier: Apache-2.0

// Package demo holds a workload that leaks memory of a simulated GPU, and runs it: the
// driver's library is ours, all else is as it is on a GPU. It is in the binary, so that a
// machine needs nothing but that.
package demo

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

//go:embed all:embedded
var embedded embed.FS // go:embed needs a package variable; it is read-only

// ErrAbsent means that this binary has no demo inside for this architecture.
var ErrAbsent = errors.New("ig-gpu was built without a demo (make build makes one)")

// python is the folder with the workload for Python; the others are architectures.
const python = "python"

// Embedded are the files linked into this binary: ARCH/libcuda.so.1, ARCH/workload and
// python/*.py.
func Embedded() fs.FS {
	files, err := fs.Sub(embedded, "embedded")
	if err != nil { // only for an invalid path, and ours is a constant
		return nil
	}
	return files
}

// Workload is a process that leaks.
type Workload struct {
	// PID is its id; What it is, for the user.
	PID  uint32
	What string

	cmd  *exec.Cmd
	dir  string
	said *output
	done chan struct{}
	once sync.Once
}

// output keeps the end of what the workload says.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

const maxOutput = 64 << 10

// Write implements io.Writer.
func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.text.Len() < maxOutput {
		o.text.Write(b)
	}
	return len(b), nil
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.TrimSpace(o.text.String())
}

// settle is how long a workload may take to fail at its start: a file system where nothing
// is executed, a missing libc.
const settle = 500 * time.Millisecond

// Start unpacks the workload into a folder of its own and starts it, in Python where there
// is one and withPython is set, else in C. It ends by itself after lifetime, and with this
// process. Stop removes all of it.
func Start(files fs.FS, lifetime time.Duration, withPython bool) (*Workload, error) {
	if files == nil {
		return nil, ErrAbsent
	}
	if _, err := fs.Stat(files, path.Join(runtime.GOARCH, "libcuda.so.1")); err != nil {
		return nil, ErrAbsent
	}
	var errs []error
	for _, parent := range folders() {
		for _, interpreter := range interpreters(withPython) {
			w, err := startIn(files, parent, interpreter, lifetime)
			if err == nil {
				return w, nil
			}
			errs = append(errs, err)
		}
	}
	return nil, fmt.Errorf("start the workload: %w", errors.Join(errs...))
}

// folders are where the files may be unpacked: some are mounted noexec.
func folders() []string {
	return slices.Compact([]string{os.TempDir(), "/var/tmp", "/dev/shm"})
}

// interpreters are Pythons to try, the last of them none.
func interpreters(withPython bool) (out []string) {
	if withPython {
		if found, err := exec.LookPath("python3"); err == nil {
			out = append(out, found)
		}
	}
	return append(out, "")
}

func startIn(files fs.FS, parent, interpreter string, lifetime time.Duration) (*Workload, error) {
	dir, err := os.MkdirTemp(parent, "ig-gpu-demo-*")
	if err != nil {
		return nil, err
	}
	w := &Workload{dir: dir, said: &output{}, done: make(chan struct{})}
	if err := unpack(files, dir, runtime.GOARCH, python); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	seconds, library := strconv.Itoa(int(lifetime/time.Second)), filepath.Join(dir, "libcuda.so.1")
	w.What = "a server in C"
	w.cmd = exec.Command(filepath.Join(dir, "workload"), library, seconds)
	if interpreter != "" {
		w.What = "a server in Python (" + interpreter + ")"
		w.cmd = exec.Command(interpreter, "-B", filepath.Join(dir, "inference.py"), "--libcuda", library,
			"--leak", "--devices", "1", "--imports", "1", "--seconds", seconds,
			"--layers", "4", "--hidden", "512", "--kv-cache-mib", "1024") // small: a slow machine must serve requests, too
	}
	w.cmd.Stdout, w.cmd.Stderr = w.said, w.said
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	// The parent whose death Pdeathsig means is a thread: it has to live as long as the workload.
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := w.cmd.Start()
		started <- err
		if err == nil {
			_ = w.cmd.Wait() // how it ended is seen by its output
			close(w.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	w.PID = uint32(w.cmd.Process.Pid)
	select {
	case <-w.done:
		w.Stop()
		return nil, fmt.Errorf("%s ended at once: %s", w.What, w.said)
	case <-time.After(settle):
		return w, nil
	}
}

// unpack writes the files of these folders into one.
func unpack(files fs.FS, dir string, folders ...string) error {
	for _, folder := range folders {
		entries, err := fs.ReadDir(files, folder)
		if err != nil {
			return fmt.Errorf("unpack the demo: %w", err)
		}
		for _, e := range entries {
			text, err := fs.ReadFile(files, path.Join(folder, e.Name()))
			if err != nil {
				return fmt.Errorf("unpack the demo: %w", err)
			}
			if err := os.WriteFile(filepath.Join(dir, e.Name()), text, 0o700); err != nil {
				return fmt.Errorf("unpack the demo: %w", err)
			}
		}
	}
	return nil
}

// Said returns the output of the workload so far.
func (w *Workload) Said() string { return w.said.String() }

// Stop ends the workload and removes its files. It may be called again.
func (w *Workload) Stop() {
	w.once.Do(func() {
		_ = syscall.Kill(-w.cmd.Process.Pid, syscall.SIGKILL) // it may have ended
		<-w.done
		_ = os.RemoveAll(w.dir) // in the folder for temporary files
	})
}
