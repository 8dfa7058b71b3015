// SPDX-License-Identifier: Apache-2.0

package nccl

import (
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject"
)

// many runs one process with that many communicators of one rank, and calls each of them
// repeatedly. It is a container of its own. It returns the process.
func many(t *testing.T, communicators int, env ...string) int {
	t.Helper()
	l := libraries(t)
	dir := t.TempDir()
	out, err := exec.Command("make", "-s", "-C", "../../../examples/bench", "OUT="+dir).CombinedOutput()
	require.NoError(t, err, "%s", out)
	cmd := exec.Command(filepath.Join(dir, "collectives"), "-l", l["libcuda"], "-n", l["libnccl"],
		"-c", strconv.Itoa(communicators), "-r", "2000", "-w", "16")
	cmd.Env = append(cmd.Environ(), "SIMCUDA_INIT_MS=0", "SIMNCCL_DIR="+t.TempDir())
	cmd.Env = append(cmd.Env, env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	p := subject.Start(t, cmd)
	p.Line() // it has reached its calls
	return p.PID()
}

// TestFullTableIsReported: entries that do not fit are counted, and the rest is right.
func TestFullTableIsReported(t *testing.T) {
	const room = 64
	tr := start(t, libraries(t), options{edit: func(spec *ebpf.CollectionSpec) {
		spec.Maps["communicators_by_handle"].MaxEntries = room
	}})
	many(t, room+20)
	deadline := time.Now().Add(waitLimit)
	for len(tr.communicators()) < room || tr.drops()["communicators_full"] == 0 {
		require.True(t, time.Now().Before(deadline), "%d communicators, %v", len(tr.communicators()), tr.drops())
		time.Sleep(100 * time.Millisecond)
	}
	require.Len(t, tr.communicators(), room)
	for _, c := range tr.communicators() {
		require.EqualValues(t, 1, c.Size)
		require.NotZero(t, c.Identity)
	}
}

// TestThousandsOfCommunicators: each has its own row, and they take the documented memory
// (docs/reference/nccl.md).
func TestThousandsOfCommunicators(t *testing.T) {
	const communicators = 2000
	tr := start(t, libraries(t), options{})
	many(t, communicators)
	identities := map[uint64]bool{}
	for _, c := range tr.communicators() {
		require.False(t, c.Late)
		identities[c.Identity] = true
	}
	require.Len(t, identities, communicators)
	require.LessOrEqual(t, tr.Maps["communicators_by_handle"].ValueSize(), uint32(4096-64))
}
