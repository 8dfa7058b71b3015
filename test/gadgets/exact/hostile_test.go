// SPDX-License-Identifier: Apache-2.0

package exact

import (
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/simulated"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/tracer"
)

// begins is the function with which PyTorch begins a backward pass: bpf/call/backward.h.
const begins = "_ZN5torch8autograd6Engine23execute_with_graph_taskERKSt10shared_ptrINS0_9GraphTaskEES2_INS0_4NodeEEONS0_11InputBufferE"

const prelude = `
import ctypes, sys
from ctypes import byref, c_int, c_size_t, c_uint64, c_void_p
cuda = ctypes.CDLL(sys.argv[1])
context, p = c_uint64(), c_uint64()
def cu(name, *arguments, expected=0):
    result = getattr(cuda, name)(*arguments)
    assert result == expected, f"{name}: error {result}"
cu("cuInit", 0)
cu("cuDevicePrimaryCtxRetain", byref(context), 0)
`

// script is a process that runs some Python; its steps end with step().
func script(t *testing.T, text string, arguments ...string) *subject.Process {
	t.Helper()
	const step = `
def step():
    print("ready", flush=True)
    sys.stdin.readline()
`
	return subject.Start(t, exec.Command("python3", append([]string{"-c", prelude + step + text}, arguments...)...))
}

// A tenant whose calls are refused all the time leaves room to the events of others.
func TestRefusedAllocationsAreBounded(t *testing.T) {
	const calls, most = 5000, 512 // ooms_own
	lib := simulated.DriverCopy(t)
	tr := tracer.Start(t, lib, tracer.Options{})
	began := tracer.Second()
	p := script(t, `
cu("cuCtxSetCurrent", context)
for n in range(int(sys.argv[2])):
    cu("cuMemAlloc_v2", byref(p), c_size_t(1 << 60), expected=2)
step()
`, lib, strconv.Itoa(calls))
	p.Expect("ready")
	allowed := most * (tracer.Second() - began + 1)
	refused := tr.Refused(tracer.QuotaOOMs)
	require.Eventually(t, func() bool { return tr.OOMs() == calls-refused }, time.Minute, time.Millisecond)
	require.LessOrEqual(t, tr.OOMs(), min(allowed, calls-1))
	require.GreaterOrEqual(t, tr.OOMs(), most/2)
	require.Equal(t, map[string]uint64{"event_lost": uint64(refused)}, tr.Drops())
	p.Say("")
	p.End()
}

// After an illegal access of a kernel a program may try again and again: refusals for which there was no memory still have room.
func TestOtherFailuresLeaveRoomToRefusals(t *testing.T) {
	const calls, most = 5000, 256 // failures_own
	lib := simulated.DriverCopy(t)
	tr := tracer.Start(t, lib, tracer.Options{})
	began := tracer.Second()
	p := script(t, `
cu("cuCtxSetCurrent", context)
for n in range(int(sys.argv[2])):
    cu("cuMemAllocHost_v2", byref(p), c_size_t(0), expected=1)
step()
cu("cuMemAlloc_v2", byref(p), c_size_t(1 << 60), expected=2)
step()
`, lib, strconv.Itoa(calls))
	p.Expect("ready")
	allowed := most * (tracer.Second() - began + 1)
	failures := calls - tr.Refused(tracer.QuotaFailures)
	require.LessOrEqual(t, failures, min(allowed, calls-1))
	require.GreaterOrEqual(t, failures, most/2)
	p.Say("")
	p.Expect("ready")
	require.Eventually(t, func() bool { return tr.OOMs() == failures+1 }, time.Minute, time.Millisecond)
	require.Zero(t, tr.Refused(tracer.QuotaOOMs))
	p.Say("")
	p.End()
}

// Pinned memory of the host takes no room on a GPU: who holds it did not cause the refusal.
func TestARefusalIsOfOneMemory(t *testing.T) {
	lib := simulated.DriverCopy(t)
	tr := tracer.Start(t, lib, tracer.Options{})
	p := script(t, `
cu("cuCtxSetCurrent", context)
cu("cuMemAlloc_v2", byref(p), c_size_t(4096))
cu("cuMemAllocHost_v2", byref(p), c_size_t(1 << 20))
cu("cuMemAlloc_v2", byref(p), c_size_t(1 << 60), expected=2)
step()
cu("cuMemAllocHost_v2", byref(p), c_size_t(1 << 60), expected=2)
step()
`, lib)
	for n, inuse := range []int64{4096, 1 << 20} {
		p.Expect("ready")
		require.Eventually(t, func() bool { return tr.OOMs() == n+1 }, time.Minute, time.Millisecond)
		require.Equal(t, inuse, tr.InuseOfOOM())
		p.Say("")
	}
	p.End()
}

// What a process holds on its other devices takes no room on the one that refused; pinned memory is that of all.
func TestARefusalIsOfOneDevice(t *testing.T) {
	lib := simulated.DriverCopy(t)
	tr := tracer.Start(t, lib, tracer.Options{})
	p := script(t, `
other = c_uint64()
cu("cuDevicePrimaryCtxRetain", byref(other), 1)
for device, size in (context, 4096), (other, 1 << 20):
    cu("cuCtxSetCurrent", device)
    cu("cuMemAlloc_v2", byref(p), c_size_t(size))
    cu("cuMemAllocHost_v2", byref(p), c_size_t(4 * size))
for device in context, other:
    cu("cuCtxSetCurrent", device)
    cu("cuMemAlloc_v2", byref(p), c_size_t(1 << 60), expected=2)
    step()
cu("cuMemAllocHost_v2", byref(p), c_size_t(1 << 60), expected=2)
step()
`, lib)
	for n, inuse := range []int64{4096, 1 << 20, 4 * (4096 + 1<<20)} {
		p.Expect("ready")
		require.Eventually(t, func() bool { return tr.OOMs() == n+1 }, time.Minute, time.Millisecond)
		require.Equal(t, inuse, tr.InuseOfOOM())
		p.Say("")
	}
	p.End()
}

// A tenant that begins one backward pass after the other does not evict those of others between two uses.
func TestBackwardPassesAreBounded(t *testing.T) {
	const passes, most = 5000, 1024 // a quarter of MAX_BACKWARD_PASSES
	lib, torch := simulated.DriverCopy(t), filepath.Join(t.TempDir(), "libtorch_cpu.so")
	source := "int " + begins + "(void) { static volatile int n; return ++n; }"
	build := exec.Command("cc", "-O1", "-shared", "-fPIC", "-x", "c", "-", "-o", torch)
	build.Stdin = strings.NewReader(source)
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
	tr := tracer.Start(t, lib, tracer.Options{})
	tr.AttachTorch(torch)
	began := tracer.Second()
	p := script(t, `
begin = getattr(ctypes.CDLL(sys.argv[2]), sys.argv[3])
task = (c_uint64 * 2)()  # std::shared_ptr<GraphTask>
for n in range(int(sys.argv[4])):
    task[0] = task[1] = 4096 * (n + 1)
    begin(None, task, task)  # the first or the second parameter after the result's address
step()
`, lib, torch, begins, strconv.Itoa(passes))
	p.Expect("ready")
	allowed := most * (tracer.Second() - began + 1)
	n := tr.Len("backward_passes")
	require.LessOrEqual(t, n, min(allowed, passes-1))
	require.GreaterOrEqual(t, n, most/2)
	require.Equal(t, passes, n+tr.Refused(tracer.QuotaPasses), "what is not in the table is counted")
	p.Say("")
	p.End()
}

// What a process leaves is deleted when it has ended: one that is not known, for which there was no room, must leave nothing.
func TestImportsOfUnknownProcesses(t *testing.T) {
	lib := simulated.DriverCopy(t)
	tr := tracer.Start(t, lib, tracer.Options{})
	known := tr.Maps["processes_by_id"]
	for id := range uint64(known.MaxEntries()) {
		require.NoError(t, known.Put((id+1)<<40, make([]byte, known.ValueSize())))
	}
	p := script(t, `
for n in range(100):
    cu("cuMemImportFromShareableHandle", byref(p), c_void_p(3), c_int(1))
step()
`, lib)
	p.Expect("ready")
	require.Zero(t, tr.Len("live_by_pointer"))
	require.Zero(t, tr.Len("handles_by_number"))
	p.Say("")
	p.End()
}

// A library that retains the primary context and releases it again does not free what it has, also where it was made
// before the attachment.
func TestAContextFromBeforeIsNotFreedByABalancedRelease(t *testing.T) {
	lib := simulated.DriverCopy(t)
	p := script(t, `
step()
cu("cuCtxSetCurrent", context)
cu("cuMemAlloc_v2", byref(p), c_size_t(4096))
for n in range(3):
    cu("cuDevicePrimaryCtxRetain", byref(context), 0)
    cu("cuDevicePrimaryCtxRelease_v2", 0)
step()
cu("cuDevicePrimaryCtxReset_v2", 0)
step()
`, lib)
	p.Expect("ready")
	tr := tracer.Start(t, lib, tracer.Options{})
	inuse := func() (bytes, implicit uint64) {
		p.Say("")
		p.Expect("ready")
		for _, r := range tr.RowsOf(p.PID()) {
			bytes += r.InuseBytes
			implicit += r.ImplicitBytes
		}
		return bytes, implicit
	}
	bytes, implicit := inuse()
	require.Equal(t, [2]uint64{4096, 0}, [2]uint64{bytes, implicit})
	bytes, implicit = inuse()
	require.Equal(t, [2]uint64{0, 4096}, [2]uint64{bytes, implicit})
	p.Say("")
	p.End()
}
