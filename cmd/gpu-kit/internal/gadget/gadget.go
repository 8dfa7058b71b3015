// SPDX-License-Identifier: Apache-2.0

// Package gadget runs ig-gpu on one process, and reads its rows.
package gadget

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Row is one row of any data source, as -o json prints it.
type Row map[string]any

// Number is a field of a row; 0 where there is none.
func (r Row) Number(key string) uint64 {
	v, _ := r[key].(json.Number)
	n, err := strconv.ParseUint(string(v), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// Text is a field of a row; "" where there is none.
func (r Row) Text(key string) string {
	v, _ := r[key].(string)
	return v
}

// Run is a running ig-gpu.
type Run struct {
	cmd    *exec.Cmd
	done   chan struct{}
	change chan struct{}

	mu     sync.Mutex
	stderr bytes.Buffer
	tables map[string][]Row // the latest reading of each data source
	rows   []Row            // those that are emitted one by one
	// reading is the table that is being printed, of one data source at one time.
	reading    []Row
	source, at string
}

// sources are the data sources that the kit has each gadget print.
var sources = map[string][]string{
	"cuda_alloc":  {"allocs", "ooms"},
	"cuda_kernel": {"calls"},
	"nccl_trace":  {"operations"},
	"py_stack":    {"samples"},
}

// settle is how long a gadget that attaches to no library has to start: it has no row
// that reports it.
const settle = 3 * time.Second

// Start runs a gadget on a process and waits, at most that long, until it is attached to a
// library, by the beginning of its file's name; "": the gadget attaches to none.
func Start(ctx context.Context, limit time.Duration, program string, env []string, name string, pid int, library string) (*Run, error) {
	output := "attachments:json,drops:json"
	for _, source := range sources[name] {
		output += "," + source + ":json"
	}
	args := []string{"run", name, "--host", "--pid", strconv.Itoa(pid), "-o", output}
	r := &Run{cmd: exec.CommandContext(ctx, program, args...), done: make(chan struct{}),
		change: make(chan struct{}, 1), tables: map[string][]Row{}}
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	r.cmd.WaitDelay = time.Second
	r.cmd.Env = append(os.Environ(), env...)
	stdout, err := r.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	r.cmd.Stderr = writer(func(b []byte) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.stderr.Write(b)
	})
	if err := r.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start ig-gpu: %w", err)
	}
	go func() {
		defer close(r.done)
		r.read(stdout)
		_ = r.cmd.Wait() // its exit code is of no interest: rows are
	}()
	if err := r.waitAttached(limit, pid, library); err != nil {
		r.Stop()
		return nil, err
	}
	return r, nil
}

type writer func([]byte)

func (w writer) Write(b []byte) (int, error) {
	w(b)
	return len(b), nil
}

func (r *Run) waitAttached(limit time.Duration, pid int, library string) error {
	if library == "" {
		select {
		case <-r.done:
			return fmt.Errorf("ig-gpu ended: %s", r.errors())
		case <-time.After(settle):
			return nil
		}
	}
	for timeout := time.After(limit); ; {
		if r.attached(pid, library) {
			return nil
		}
		select {
		case <-r.change:
		case <-r.done:
			return fmt.Errorf("ig-gpu ended: %s", r.errors())
		case <-timeout:
			return fmt.Errorf("ig-gpu did not attach to %s in %v: %s", library, limit, r.errors())
		}
	}
}

func (r *Run) attached(pid int, library string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, row := range r.rows {
		if row.Text("status") == "attached" && row.Number("pid") == uint64(pid) &&
			strings.HasPrefix(filepath.Base(row.Text("path")), library) {
			return true
		}
	}
	return false
}

func (r *Run) read(from io.Reader) {
	lines := bufio.NewReaderSize(from, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		if line = bytes.TrimSpace(line); len(line) > 1 {
			r.take(line)
		}
		if err != nil {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.complete()
			return
		}
		select {
		case r.change <- struct{}{}:
		default:
		}
	}
}

// take processes a line, which is a row. Rows of one data source and time are a reading of a
// table, which is complete when another row follows.
func (r *Run) take(line []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	decode := json.NewDecoder(bytes.NewReader(line))
	decode.UseNumber() // addresses and ids have 64 bits
	var row Row
	if decode.Decode(&row) != nil {
		return
	}
	source := row.Text("source") // of rows with a field type of their own
	if source == "" {
		source = row.Text("type")
	}
	read := row.Text("time")
	if source != r.source || read != r.at {
		r.complete()
	}
	if read == "" {
		r.rows = append(r.rows, row)
		return
	}
	r.source, r.at = source, read
	r.reading = append(r.reading, row)
}

// complete ends the reading of a table.
func (r *Run) complete() {
	if len(r.reading) > 0 {
		r.tables[r.source] = r.reading
	}
	r.reading, r.source, r.at = nil, "", ""
}

func (r *Run) errors() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	text := strings.TrimSpace(r.stderr.String())
	if n := len(text); n > 300 {
		text = text[n-300:]
	}
	return text
}

// Table is the latest reading of a data source that has rows.
func (r *Run) Table(source string) []Row {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tables[source]
}

// Rows are those that came one by one: attachments, refused allocations.
func (r *Run) Rows() []Row {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.rows
}

// Drops are the counts of what could not be recorded, by reason, without zeroes. Stacks without some
// native callers are not among them: numbers are complete, and how many of a program's first
// stacks these are depends on how soon unwind information is read.
func (r *Run) Drops() map[string]uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	drops := map[string]uint64{}
	for _, row := range r.tables["drops"] {
		if n, reason := row.Number("count"), row.Text("reason"); n > 0 && !strings.HasPrefix(reason, "native_") {
			drops[reason] = n
		}
	}
	return drops
}

// Stop is Ctrl-C; the last table is then the final one.
func (r *Run) Stop() {
	_ = r.cmd.Process.Signal(syscall.SIGINT)
	select {
	case <-r.done:
	case <-time.After(30 * time.Second):
		_ = r.cmd.Process.Kill()
		<-r.done
	}
}

// Objects are the ids of the eBPF programs, maps and links that ig-gpu has open, as
// "prog 12", for a check that they are gone when it has ended.
func (r *Run) Objects() map[string]bool {
	objects := map[string]bool{}
	paths, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", r.cmd.Process.Pid))
	for _, path := range paths {
		b, _ := os.ReadFile(path)
		for _, line := range strings.Split(string(b), "\n") {
			for _, kind := range []string{"prog", "map", "link"} {
				if id, ok := strings.CutPrefix(line, kind+"_id:"); ok {
					objects[kind+" "+strings.TrimSpace(id)] = true
				}
			}
		}
	}
	return objects
}
