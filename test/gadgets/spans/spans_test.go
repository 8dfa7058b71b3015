// SPDX-License-Identifier: Apache-2.0

// Package spans compares --spans with the truth: programs that publish their current
// span, in every way in which glibc stores a thread-local variable, allocate on the
// simulated driver, whose journal has the span of each call.
package spans

import (
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/operators/attach/spans"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/simulated"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/tracer"
)

// calls is how many calls a thread of a random program makes: in make test a quarter of
// those of make test-long.
func calls(long int) string { return strconv.Itoa(subject.Volume(long/4, long)) }

// enum tls_access of bpf/process/tls.h.
const (
	static     = 1
	offset     = 2
	index      = 3
	descriptor = 4
)

// Every way in which compilers and glibc have it stored, and threads that are older
// than the library that publishes.
func TestEveryAllocationHasItsSpan(t *testing.T) {
	lib := simulated.DriverCopy(t)
	tr := start(t, lib, 1<<18)
	own := []string{"-DOWN", "testdata/publisher.c", "-Wl,--export-dynamic-symbol=otel_thread_ctx_v1"}
	for _, c := range []struct {
		name    string
		program []string // flags
		library []string // flags; nil: the program is the publisher
		access  uint32
	}{
		{"program", own, nil, static},
		{"program at a fixed address", append([]string{"-no-pie"}, own...), nil, static},
		{"program with a large aligned block", append([]string{"-DBLOCK=5001", "-include", "testdata/aligned.h"}, own...), nil, static},
		{"library of the program", nil, []string{"-DLINKED"}, index},
		{"dlopen", nil, []string{}, index},
		{"dlopen, local-dynamic", nil, []string{"-ftls-model=local-dynamic"}, index},
		{"dlopen, descriptor, static", nil, []string{"-mtls-dialect=gnu2"}, descriptor},
		{"dlopen, descriptor, dynamic", nil, []string{"-mtls-dialect=gnu2", "-DBLOCK=100000"}, descriptor},
		{"dlopen, initial-exec", nil, []string{"-ftls-model=initial-exec"}, offset},
		{"dlopen, DT_HASH", nil, []string{"-Wl,--hash-style=sysv"}, index},
	} {
		t.Run(c.name, func(t *testing.T) {
			flags, library := c.program, ""
			if c.library != nil {
				library = publisher(t, c.library...)
				if len(c.library) > 0 && c.library[0] == "-DLINKED" {
					flags = []string{"-Wl,--no-as-needed", library, "-Wl,-rpath," + filepath.Dir(library)}
				}
			}
			p := run(t, workload(t, flags...), lib, library, "4", calls(20000), "")
			require.Equal(t, c.access, p.found(t, tr).Access)
			p.next()
			p.wait("done")
			requireSpans(t, truth(t, p.dir), of(tr.bySpan(), p.PID()), 1000)
		})
	}
	require.Empty(t, tr.Drops())
}

// of leaves one process.
func of(all map[key]counts, pid int) map[key]counts {
	one := map[key]counts{}
	for k, c := range all {
		if int(k.pid) == pid {
			one[k] = c
		}
	}
	return one
}

func TestPythonAllocationsHaveTheirSpans(t *testing.T) {
	lib := simulated.DriverCopy(t)
	tr := start(t, lib, 0)
	p := run(t, "python3", "testdata/workload.py", lib, publisher(t), "4", "2000")
	require.Equal(t, uint32(index), p.found(t, tr).Access)
	p.next()
	p.wait("done")
	requireSpans(t, truth(t, p.dir), tr.bySpan(), 500)
	require.Empty(t, tr.Drops())
}

// A child inherits the source of its parent, from its first call on.
func TestForkedProcessesHaveSpans(t *testing.T) {
	lib := simulated.DriverCopy(t)
	tr := start(t, lib, 0)
	p := run(t, workload(t), lib, publisher(t), "1", calls(20000), "fork")
	p.found(t, tr)
	p.next()
	p.wait("done")
	have := tr.bySpan()
	p.next()
	p.Wait()
	requireSpans(t, truth(t, p.dir), have, 300)
	require.Empty(t, tr.Drops())
	require.Eventually(t, func() bool { return tr.Len("span_source_by_tgid") == 0 }, waitLimit, 10*time.Millisecond,
		"the processes have ended")
}

// Published spans are not trusted: nothing is invented, and all bytes count.
func TestMisleadingContextsAreNotBelieved(t *testing.T) {
	lib := simulated.DriverCopy(t)
	tr := start(t, lib, 0)
	p := run(t, workload(t), lib, publisher(t), "4", calls(20000), "hostile")
	p.found(t, tr)
	p.next()
	said := p.wait("done")
	requireSpans(t, truth(t, p.dir), tr.bySpan(), 1000)
	wild, err := strconv.Atoi(strings.TrimPrefix(said, "wild "))
	require.NoError(t, err)
	require.Positive(t, wild)
	require.Equal(t, map[string]uint64{"span_unreadable": uint64(wild)}, tr.Drops())
}

// A process that claims a wrong address for its variable.
func TestMisleadingPlacesAreNotBelieved(t *testing.T) {
	lib := simulated.DriverCopy(t)
	tr := start(t, lib, 0)
	p := run(t, workload(t), lib, publisher(t), "2", calls(200000), "")
	source := p.found(t, tr)
	var wrong []spans.Source
	for access := uint32(0); access < 7; access++ {
		for _, at := range []uint64{0, 1, 4096, source.At + 1, 1 << 46, ^uint64(0), 0xffffffff81000000} {
			for _, beside := range []uint64{0, ^uint64(0), 1 << 40} {
				s := source
				s.At, s.Offset, s.Access = at, beside, access
				wrong = append(wrong, s)
			}
		}
	}
	put := func(i int) {
		require.NoError(t, tr.Maps["span_source_by_tgid"].Put(uint32(p.PID()), wrong[i%len(wrong)]))
	}
	put(0)
	p.next()
	done := make(chan struct{})
	go func() { defer close(done); p.wait("done") }()
	rounds := 1
	for ended := false; !ended; rounds++ {
		put(rounds)
		select {
		case <-done:
			ended = true
		case <-time.After(time.Millisecond):
		}
	}
	require.Greater(t, rounds, len(wrong), "not all were tried")
	var want counts
	for _, c := range truth(t, p.dir) {
		want = want.plus(c)
	}
	// The data there may look like a record by chance: then only the process's own
	// span is wrong.
	var have counts
	for _, c := range tr.bySpan() {
		have = have.plus(c)
	}
	require.Equal(t, want, have)
	drops := tr.Drops()
	require.Positive(t, drops["span_unreadable"])
	require.LessOrEqual(t, drops["span_unreadable"], want.allocObjects)
	require.Len(t, drops, 1)
}

// Another program in the same process: the state of the old one is dropped.
func TestSourceOfAnotherAddressSpaceIsNotUsed(t *testing.T) {
	lib := simulated.DriverCopy(t)
	tr := start(t, lib, 0)
	p := run(t, workload(t), lib, publisher(t), "2", "5000", "")
	s := p.found(t, tr)
	s.StartStack++
	require.NoError(t, tr.Maps["span_source_by_tgid"].Put(uint32(p.PID()), s))
	p.next()
	p.wait("done")
	have := tr.bySpan()
	require.Len(t, have, 1)
	require.Contains(t, have, key{uint32(p.PID()), ""})
	require.Empty(t, tr.Drops())
}

func TestProcessesThatPublishNothingHaveNoSpans(t *testing.T) {
	lib := simulated.DriverCopy(t)
	tr := start(t, lib, 0)
	quiet := compile(t, "libquiet.so", "-shared", "-fPIC", "-Dotel_thread_ctx_v1=another", "testdata/publisher.c")
	p := run(t, workload(t), lib, quiet, "2", "5000", "")
	time.Sleep(200 * time.Millisecond)
	require.Zero(t, tr.table.of(p.PID()))
	p.next()
	p.wait("done")
	have := tr.bySpan()
	require.Len(t, have, 1)
	require.Contains(t, have, key{uint32(p.PID()), ""})
	require.Empty(t, tr.Drops())
}

// A container with as many spans as there is room for leaves the last quarter to others.
func TestATenantLeavesSpansToOthers(t *testing.T) {
	const rows = 2048
	lib := simulated.DriverCopy(t)
	tr := start(t, lib, rows)
	work, library := workload(t), publisher(t)
	tenant := func(threads, calls string) *program {
		cmd := exec.Command(work, lib, library, threads, calls, "")
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
		p := runCommand(t, cmd)
		p.found(t, tr)
		p.next()
		p.wait("done")
		return p
	}
	hostile := tenant("2", "40000")
	have := len(of(tr.bySpan(), hostile.PID()))
	require.InDelta(t, rows/4*3+1, have, 2, "with the row of what has no span; threads that race may have one more")
	require.Positive(t, tr.Refused(tracer.QuotaSpans))
	honest := tenant("1", "1000")
	requireSpans(t, truth(t, honest.dir), of(tr.bySpan(), honest.PID()), 20)
}

// Without room for spans, their allocations are counted at the stack.
func TestBeyondTheLimitBytesStayAtTheirStack(t *testing.T) {
	lib := simulated.DriverCopy(t)
	tr := start(t, lib, 100)
	p := run(t, workload(t), lib, publisher(t), "2", "10000", "")
	p.found(t, tr)
	p.next()
	p.wait("done")
	want, have := truth(t, p.dir), tr.bySpan()
	var wantAll, haveAll counts
	whole := 0
	for k, c := range want {
		wantAll = wantAll.plus(c)
		if k.span != "" && have[k] == c {
			whole++
		}
	}
	for _, c := range have {
		haveAll = haveAll.plus(c)
	}
	require.Equal(t, wantAll, haveAll)
	require.Equal(t, 75, whole, "one container's share")
	require.Len(t, have, 76)
	drops := tr.Drops()
	require.Positive(t, drops["span_rows_full"])
	delete(drops, "span_rows_full")
	require.Empty(t, drops)
}
