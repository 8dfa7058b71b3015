// SPDX-License-Identifier: Apache-2.0

package pystack

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/memory"
)

func TestRoleIsThatOfAKnownName(t *testing.T) {
	for comm, want := range map[string]string{
		"pt_autograd_0":   "backward work on device 0",
		"pt_autograd_13":  "backward work on device 13",
		"pt_autograd_":    "",
		"pt_autograd_x":   "",
		"pt_data_pin":     "pins batches for the thread that iterates over a DataLoader",
		"pt_data_pinned":  "",
		"python3":         "",
		"":                "",
		"pt_nccl_watchdg": "watches a process group's collectives of NCCL",
	} {
		require.Equal(t, want, byName(comm), comm)
	}
	for comm := range named {
		require.LessOrEqual(t, len(comm), 15, "the kernel cuts %s", comm)
	}
}

const compiler = "/usr/bin/python3\x00/venv/torch/_inductor/compile_worker/__main__.py\x00--workers=8\x00--parent=4711\x00--read-fd=5\x00"

func TestRoleIsThatOfAKnownCommandLine(t *testing.T) {
	for line, want := range map[string]string{
		compiler:                        "compiles for torch.compile",
		"ray::Trainer.step\x00\x00\x00": "runs Ray's Trainer.step",
		"ray::load_batch":               "runs Ray's load_batch",
		"ray::ServeReplica:llm:LLMServer.chat\x00":            "runs Ray's ServeReplica:llm:LLMServer.chat",
		"ray::ServeReplica:default:my-model":                  "runs Ray's ServeReplica:default:my-model",
		"ray::ServeReplica:default:\x1b[31m":                  "runs Ray's ServeReplica:default:",
		"ray::IDLE\x00":                                       "a worker of Ray's without work",
		"ray::\x1b[31m":                                       "",
		"python3\x00train.py\x00ray::A":                       "",
		"python3\x00compile_worker/__main__.py\x00--parent=x": "",
		"": "",
	} {
		role, parent := byTitle(memory.Joined([]byte(line)))
		require.Equal(t, want, role, "%q", line)
		require.Equal(t, line == compiler, parent == "4711", "%q", line)
	}
}

// TestRoleOfAProcessIsThatOfItsMainThread, and a worker's parent is who it works for: a compiler's by the id that this has
// in its container.
func TestRoleOfAProcessIsThatOfItsMainThread(t *testing.T) {
	procfs := t.TempDir()
	put := func(pid int, file, text string) {
		dir := filepath.Join(procfs, strconv.Itoa(pid))
		require.NoError(t, os.MkdirAll(dir, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644))
	}
	const others = " 20 20 0 -1 0 0 0 0 0 5 5 0 0 20 0 1 0 100 1 2 3\n"
	child := func(pid, parent int, ids string) {
		put(pid, "stat", fmt.Sprintf("%d (a) b) S %d%s", pid, parent, others))
		put(pid, "status", "NSpid:\t"+ids+"\nSigPnd:\t0\nShdPnd:\t0\n")
	}
	child(1, 0, "1")
	child(60, 1, "60\t4711") // the trainer, in a container
	child(11, 60, "11\t70")  // the process that it has started
	child(10, 11, "10\t71")  // one that this has forked
	for _, pid := range []int{10, 11, 12, 13, 14, 15} {
		put(pid, "cmdline", compiler)
	}
	child(12, 1, "12\t72") // given to another parent, as its own has ended
	child(4711, 1, "4711") // has the id by chance
	child(13, 4711, "13")  // on the host
	child(14, 10, "14\t74")
	child(15, 14, "15\t75") // too far from it
	child(20, 4711, "20")
	put(30, "stat", "30 (worker) S")
	put(50, "cmdline", strings.Repeat("x", maxTitle)+compiler)
	r := newRoles(procfs)
	of := func(pid, tid uint32, comm string) string {
		return r.of(&thread{Record: Record{PID: pid, TID: tid}, comm: comm})
	}
	for pid, want := range map[uint32]string{10: " in process 60", 11: " in process 60", 12: "", 13: " in process 4711", 14: " in process 60", 15: ""} {
		require.Equal(t, "compiles for torch.compile"+want, of(pid, pid, "python3"), pid)
	}
	require.Empty(t, of(10, 11, "python3"))
	require.Equal(t, "backward work on device 0", of(10, 12, "pt_autograd_0"))
	require.Equal(t, "a DataLoader's worker process of process 4711", of(20, 20, "pt_data_worker"))
	require.Equal(t, "a DataLoader's worker process", of(30, 30, "pt_data_worker"))
	require.Equal(t, "a DataLoader's worker process", of(40, 40, "pt_data_worker"), "it has ended")
	require.Empty(t, of(40, 40, "python3"))
	require.Empty(t, of(50, 50, "python3"), "not in what is read")
}
