// SPDX-License-Identifier: Apache-2.0

// Package example keeps bpf/README.md true: its program is compiled, loaded and
// run, and its table of maps compared with the compiled program.
package example

import (
	"bufio"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/bpftest"
)

const readme = "../../../bpf/README.md"

func text(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(readme)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// program compiles the first block of C.
func program(t *testing.T) *ebpf.CollectionSpec {
	t.Helper()
	_, rest, ok := strings.Cut(text(t), "\n```c\n")
	code, _, closed := strings.Cut(rest, "\n```\n")
	if !ok || !closed {
		t.Fatalf("%s has no block of C", readme)
	}
	path := filepath.Join(t.TempDir(), "example.bpf.c")
	if err := os.WriteFile(path, []byte(code), 0o600); err != nil {
		t.Fatal(err)
	}
	return bpftest.Spec(t, path)
}

var mapRow = regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| ([^|]+) \\| ([0-9]+) \\| ([^|]*)\\|$")

// TestMapsAreThoseOfTheReadme: every map that the headers bring, its entries and
// about the bytes of its values.
func TestMapsAreThoseOfTheReadme(t *testing.T) {
	spec := program(t)
	rows := mapRow.FindAllStringSubmatch(text(t), -1)
	if len(rows) < 5 {
		t.Fatalf("%d maps in the table", len(rows))
	}
	var listed []string
	for _, row := range rows {
		name, entries := row[1], strings.TrimSpace(row[2])
		listed = append(listed, name)
		m := spec.Maps[name]
		if m == nil {
			t.Errorf("%s is not in the program", name)
			continue
		}
		// Rounded: that of a thread changes with every idea.
		bytes, _ := strconv.ParseFloat(row[3], 64)
		if size := float64(m.ValueSize); math.Abs(bytes-size) > size/10 {
			t.Errorf("%s: the table says %s bytes, it has %d", name, row[3], m.ValueSize)
		}
		if n, err := strconv.Atoi(entries); err == nil && uint32(n) != m.MaxEntries {
			t.Errorf("%s: the table says %d entries, it has %d", name, n, m.MaxEntries)
		}
	}
	ours := []string{"stack_by_task", "calls_by_stack"} // the example's own
	for name := range spec.Maps {
		if !strings.HasPrefix(name, ".") && !slices.Contains(listed, name) && !slices.Contains(ours, name) {
			t.Errorf("%s is not in the table", name)
		}
	}
}

// TestExampleRuns: the program of the README shows the lines of a Python program. The ids of its stack and of its
// functions are others with each run, so that no program can have those of another one.
func TestExampleRuns(t *testing.T) {
	bpftest.RequireRoot(t)
	spec := program(t)
	lines, ids := run(t, spec)
	if want := []string{"inner:3", "outer:5", "<module>:8"}; !slices.Equal(lines, want) {
		t.Errorf("got %v, want %v", lines, want)
	}
	again, others := run(t, spec)
	if !slices.Equal(lines, again) {
		t.Errorf("got %v, then %v", lines, again)
	}
	for _, id := range ids {
		if slices.Contains(others, id) {
			t.Errorf("id %x is of both runs: %x, %x", id, ids, others)
		}
	}
}

// run returns the lines of a stack, and its id and theirs.
func run(t *testing.T, spec *ebpf.CollectionSpec) (lines []string, ids []uint64) {
	t.Helper()
	c := bpftest.LoadSpec(t, spec.Copy())
	const script = `import os, sys
def inner():
    os.getppid()
def outer():
    inner()
print("ready", flush=True)
sys.stdin.readline()
outer()
print("done", flush=True)
sys.stdin.readline()
`
	python := exec.Command("python3", "-c", script)
	in, err := python.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := python.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := python.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = python.Process.Kill()
		_ = python.Wait()
	})
	said := bufio.NewReader(out)
	// python3 can be a shell script that ends in Python, and shells call getppid(),
	// too.
	if line, err := said.ReadString('\n'); line != "ready\n" {
		t.Fatalf("python said %q, %v", line, err)
	}
	file, err := link.OpenExecutable(libc(t, python.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	l, err := file.Uprobe("getppid", c.Programs["on_getppid"], &link.UprobeOptions{PID: python.Process.Pid})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	fmt.Fprintln(in)
	if line, err := said.ReadString('\n'); line != "done\n" {
		t.Fatalf("python said %q, %v", line, err)
	}
	var id, calls uint64
	it := c.Maps["calls_by_stack"].Iterate()
	if !it.Next(&id, &calls) || calls != 1 {
		t.Fatalf("no stack with one call: %d, %v", calls, it.Err())
	}
	b, err := c.Maps["stacks_by_id"].LookupBytes(id)
	if err != nil || b == nil {
		t.Fatalf("stack %x: %v", id, err)
	}
	raw, err := stack.DecodeStack(b)
	if err != nil {
		t.Fatal(err)
	}
	ids = append(ids, id)
	for _, f := range raw.Python {
		b, err := c.Maps["symbols_by_id"].LookupBytes(f.Symbol)
		if err != nil || b == nil {
			t.Fatalf("symbol %x: %v", f.Symbol, err)
		}
		s, err := stack.DecodeSymbol(b)
		if err != nil {
			t.Fatal(err)
		}
		lines, ids = append(lines, fmt.Sprintf("%s:%d", s.Function, f.Line)), append(ids, f.Symbol)
	}
	return lines, ids
}

// libc is the one that the process has mapped.
func libc(t *testing.T, pid int) string {
	t.Helper()
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(maps)) {
		fields := strings.Fields(line)
		if len(fields) == 6 && strings.HasPrefix(filepath.Base(fields[5]), "libc.so.6") {
			return fields[5]
		}
	}
	t.Fatalf("process %d has no libc.so.6", pid)
	return ""
}
