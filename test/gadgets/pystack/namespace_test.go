// SPDX-License-Identifier: Apache-2.0

package pystack

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject/tables"
)

// startInNamespace starts a program as process 1 of a PID namespace, as a
// container's is, and returns its id outside.
func startInNamespace(t *testing.T, command ...string) (*workload, int) {
	t.Helper()
	w := start(t, append([]string{"unshare", "--pid", "--fork", "--kill-child", "--mount-proc"}, command...)...)
	path := fmt.Sprintf("/proc/%d/task/%[1]d/children", w.Process.Pid)
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if pid, err := strconv.Atoi(strings.TrimSpace(string(b))); err == nil {
			return w, pid
		}
	}
	t.Fatalf("%s stays empty: unshare has started nothing", path)
	return nil, 0
}

// outside maps the ids that a process's threads have in their PID namespace to ours.
func outside(t *testing.T, pid int) map[uint32]uint32 {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil || len(files) == 0 {
		t.Fatalf("threads of %d: %d, %v", pid, len(files), err)
	}
	ids := map[uint32]uint32{}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(b), "NSpid:")
		rest, _, _ = strings.Cut(rest, "\n")
		numbers := strings.Fields(rest)
		ours, err1 := strconv.ParseUint(numbers[0], 10, 32)
		theirs, err2 := strconv.ParseUint(numbers[len(numbers)-1], 10, 32)
		if err1 != nil || err2 != nil || len(numbers) < 2 {
			t.Fatalf("%s: NSpid %q", file, rest)
		}
		ids[uint32(theirs)] = uint32(ours)
	}
	return ids
}

// TestPIDNamespace: from the host, the threads of a process in its own PID namespace have
// the host's ids, and the stacks that the process itself reports.
func TestPIDNamespace(t *testing.T) {
	const count = 30
	all := pythons(t)
	for _, python := range []string{all[0], all[len(all)-1]} {
		t.Run(filepath.Base(python), func(t *testing.T) {
			w, pid := startInNamespace(t, python, "testdata/threads.py", fmt.Sprint(count))
			want := truth(t, w)
			ids := outside(t, pid)
			c := load(t, dump, pid)
			got := threads(t, c)
			if len(got) != count+1 {
				t.Errorf("%d threads in the dump, want %d and the main one", len(got), count)
			}
			for inside, frames_ := range want {
				one, ok := got[ids[inside]]
				if !ok || one.PID != uint32(pid) || ids[inside] == inside {
					t.Errorf("thread %d, outside %d of process %d, is %+v", inside, ids[inside], pid, one)
				} else if got := frames(t, c, one.StackID); !slices.Equal(got, frames_) {
					t.Errorf("thread %d:\n got  %v\n want %v", inside, got, frames_)
				}
			}
		})
	}
}

// TestRunInPIDNamespace: so does the product, all three ways; and its rows carry
// the mount namespace by which a container is known.
func TestRunInPIDNamespace(t *testing.T) {
	python := pythons(t)[0]
	w, pid := startInNamespace(t, python, "testdata/threads.py", "5")
	truth(t, w)
	// A fifth of the time is enough: 20 samples per second.
	ended := make(chan struct{})
	t.Cleanup(func() { close(ended) })
	go func() {
		for turn := time.NewTicker(50 * time.Millisecond); ; {
			select {
			case <-turn.C:
				fmt.Fprintln(w.in, "window 0.01")
			case <-ended:
				turn.Stop()
				return
			}
		}
	}()
	namespace, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", pid))
	if err != nil {
		t.Fatal(err)
	}
	for name, arguments := range map[string][]string{
		"dump": {"--mode", "dump", "--format", "rows", "-o", "threads:json"},
		"CPU":  {"--timeout", "2", "-o", "samples:json"},
		"wall": {"--wall", "--timeout", "2", "-o", "samples:json"},
	} {
		arguments = append(arguments, "--pid", fmt.Sprint(pid), "--fields", "*")
		stdout, stderr, err := igGPU(t, arguments...)
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, stderr)
		}
		table, err := io.ReadAll(tables.Reader(strings.NewReader(stdout)))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		lines := bytes.Split(bytes.TrimSpace(table), []byte("\n"))
		var rows []struct {
			Proc struct {
				Pid     int
				MntnsID uint64 `json:"mntns_id"`
			}
			MntnsID uint64 `json:"mntns_id"`
			Frame   string
		}
		if err := json.Unmarshal(lines[len(lines)-1], &rows); err != nil {
			t.Fatalf("%s: %v in %.300q", name, err, stdout)
		}
		looping := false
		for _, row := range rows {
			looping = looping || strings.HasPrefix(row.Frame, "main (threads.py:")
			if row.Proc.Pid != pid {
				t.Errorf("%s: a row of process %d, want %d", name, row.Proc.Pid, pid)
			}
			if id := row.Proc.MntnsID + row.MntnsID; fmt.Sprintf("mnt:[%d]", id) != namespace {
				t.Errorf("%s: a row has the mount namespace %d, want %s", name, id, namespace)
			}
		}
		if !looping {
			t.Errorf("%s: the loop of main() is not in %+v", name, rows)
		}
	}
}
