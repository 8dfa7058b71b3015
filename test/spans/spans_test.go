// SPDX-License-Identifier: Apache-2.0

// Package spans holds --spans to the truth: programs that publish the span they work
// on, in every way that glibc stores a thread-local variable, allocate on the simulated
// driver, whose journal has the span of each call.
package spans

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/examples/simcuda/journal"
	"github.com/gpu-gadgets/gpu-gadgets/operators/procmaps"
	"github.com/gpu-gadgets/gpu-gadgets/operators/spans"
	"github.com/gpu-gadgets/gpu-gadgets/test/tracer"
)

const patience = 20 * time.Second

// driver builds the simulated driver and gives a copy: probes are on the file, for
// whoever has it mapped.
func driver(t *testing.T) string {
	t.Helper()
	built := "../../build/simcuda/libcuda.so.1"
	out, err := exec.Command("make", "-s", "-C", "../../examples/simcuda", built).CombinedOutput()
	require.NoError(t, err, "build the simulated driver: %s", out)
	content, err := os.ReadFile(built)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "libcuda.so.1")
	require.NoError(t, os.WriteFile(path, content, 0o755))
	return path
}

// compile runs the C compiler.
func compile(t *testing.T, out string, arguments ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), out)
	arguments = append([]string{"-O1", "-Wall", "-Werror", "-o", path}, arguments...)
	text, err := exec.Command("gcc", arguments...).CombinedOutput()
	require.NoError(t, err, "gcc %v: %s", arguments, text)
	return path
}

func publisher(t *testing.T, flags ...string) string {
	return compile(t, "libpublisher.so", append(flags, "-shared", "-fPIC", "testdata/publisher.c")...)
}

func workload(t *testing.T, flags ...string) string {
	return compile(t, "workload", append([]string{"testdata/workload.c", "-pthread"}, flags...)...)
}

// table passes on to the programs, and remembers how the variables were found.
type table struct {
	spans.Table
	mu   sync.Mutex
	puts map[uint32]spans.Source
}

func (t *table) Put(tgid uint32, s spans.Source) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.puts[tgid] = s
	return t.Table.Put(tgid, s)
}

func (t *table) of(pid int) spans.Source {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.puts[uint32(pid)]
}

// traced is a tracer that keeps rows by span.
type traced struct {
	*tracer.Tracer
	table *table
}

func start(t *testing.T, library string, edit func(*ebpf.CollectionSpec)) *traced {
	t.Helper()
	tr := tracer.Start(t, library, tracer.Options{Edit: func(spec *ebpf.CollectionSpec) {
		require.NoError(t, spec.Variables["span_ids"].Set(true))
		spans.Enlarge(spec.Maps)
		if edit != nil {
			edit(spec)
		}
	}})
	found := &table{Table: spans.TableOf(tr.Maps["span_source_by_tgid"]), puts: map[uint32]spans.Source{}}
	f := spans.NewFollower(spans.Config{
		Processes: procmaps.NewCache(procmaps.Config{ProcFS: "/proc"}), Table: found,
		Warn: func(text string) { t.Log("warning: ", text) },
	})
	require.NoError(t, f.Start(t.Context()))
	t.Cleanup(f.Stop)
	return &traced{tr, found}
}

// program is a running workload.
type program struct {
	t     *testing.T
	cmd   *exec.Cmd
	in    io.Writer
	lines chan string
	dir   string
}

func run(t *testing.T, arguments ...string) *program {
	t.Helper()
	p := &program{t: t, cmd: exec.Command(arguments[0], arguments[1:]...), lines: make(chan string, 16), dir: t.TempDir()}
	p.cmd.Env = append(os.Environ(), "SIMCUDA_JOURNAL="+p.dir)
	p.cmd.Stderr = os.Stderr
	in, err := p.cmd.StdinPipe()
	require.NoError(t, err)
	p.in = in
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	go func() {
		defer close(p.lines)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			p.lines <- lines.Text()
		}
	}()
	t.Cleanup(func() {
		if p.cmd.ProcessState == nil {
			_ = p.cmd.Process.Kill()
			_ = p.cmd.Wait()
		}
	})
	p.wait("ready")
	return p
}

// wait reads lines up to one, and returns the one before it.
func (p *program) wait(line string) (before string) {
	p.t.Helper()
	timeout := time.After(patience)
	for {
		select {
		case text, ok := <-p.lines:
			require.True(p.t, ok, "the workload has ended before it said %s", line)
			if text == line {
				return before
			}
			before = text
		case <-timeout:
			require.Fail(p.t, "the workload does not come to say "+line)
		}
	}
}

func (p *program) next() {
	p.t.Helper()
	_, err := io.WriteString(p.in, "\n")
	require.NoError(p.t, err)
}

// found waits until the follower has found the program's variable.
func (p *program) found(tr *traced) spans.Source {
	p.t.Helper()
	require.Eventually(p.t, func() bool { return tr.table.of(p.cmd.Process.Pid).Access != 0 }, patience, 10*time.Millisecond,
		"nothing was found in the process")
	return tr.table.of(p.cmd.Process.Pid)
}

// key is what rows and journal have in common.
type key struct {
	pid  uint32
	span string
}

type counts struct{ allocBytes, allocObjects, freedBytes, freedObjects, inuseBytes uint64 }

func (c counts) plus(d counts) counts {
	return counts{c.allocBytes + d.allocBytes, c.allocObjects + d.allocObjects,
		c.freedBytes + d.freedBytes, c.freedObjects + d.freedObjects, c.inuseBytes + d.inuseBytes}
}

func truth(t *testing.T, dir string) map[key]counts {
	t.Helper()
	journals, err := journal.ReadDir(dir)
	require.NoError(t, err)
	sums, err := journal.Summarize(journals)
	require.NoError(t, err)
	all := map[key]counts{}
	for k, s := range sums.Rows {
		if s.AllocObjects == 0 {
			continue // calls that allocate nothing
		}
		span := ""
		if k.Tag != 0 {
			span = fmt.Sprintf("%016x", k.Tag)
		}
		all[key{k.Process.PID, span}] = counts{s.AllocBytes, s.AllocObjects, s.FreedBytes, s.FreedObjects, s.InUseBytes()}
	}
	require.NotEmpty(t, all)
	return all
}

func (tr *traced) bySpan() map[key]counts {
	all := map[key]counts{}
	for _, r := range tr.Rows() {
		k := key{r.PID, r.Span}
		all[k] = all[k].plus(counts{r.AllocBytes, r.AllocObjects, r.FreedBytes, r.FreedObjects, r.InuseBytes})
	}
	return all
}

// requireSpans compares span by span, of at least so many.
func requireSpans(t *testing.T, want, have map[key]counts, least int) {
	t.Helper()
	wrong := 0
	for k, w := range want {
		if h := have[k]; h != w {
			if wrong++; wrong < 10 {
				t.Errorf("process %d, span %q: %+v, want %+v", k.pid, k.span, h, w)
			}
		}
	}
	for k, h := range have {
		if _, ok := want[k]; !ok {
			if wrong++; wrong < 10 {
				t.Errorf("process %d, span %q: %+v, want nothing", k.pid, k.span, h)
			}
		}
	}
	require.Zero(t, wrong, "spans that differ, of %d", len(want))
	require.GreaterOrEqual(t, len(want), least, "too few spans to tell")
	t.Logf("%d spans are exact", len(want))
}

// enum span_access of bpf/span.h.
const (
	static     = 1
	offset     = 2
	index      = 3
	descriptor = 4
)

// Every way in which compilers and glibc have it stored, and threads that are older
// than the library that publishes.
func TestEveryAllocationHasItsSpan(t *testing.T) {
	lib := driver(t)
	tr := start(t, lib, func(spec *ebpf.CollectionSpec) { spec.Maps["rows_by_span"].MaxEntries = 1 << 18 })
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
			p := run(t, workload(t, flags...), lib, library, "4", "20000", "")
			require.Equal(t, c.access, p.found(tr).Access)
			p.next()
			p.wait("done")
			requireSpans(t, truth(t, p.dir), of(tr.bySpan(), p.cmd.Process.Pid), 1000)
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
	lib := driver(t)
	tr := start(t, lib, nil)
	p := run(t, "python3", "testdata/workload.py", lib, publisher(t), "4", "2000")
	require.Equal(t, uint32(index), p.found(tr).Access)
	p.next()
	p.wait("done")
	requireSpans(t, truth(t, p.dir), tr.bySpan(), 500)
	require.Empty(t, tr.Drops())
}

// A child has what its parent was found to have, from its first call on.
func TestForkedProcessesHaveSpans(t *testing.T) {
	lib := driver(t)
	tr := start(t, lib, nil)
	p := run(t, workload(t), lib, publisher(t), "1", "20000", "fork")
	p.found(tr)
	p.next()
	p.wait("done")
	have := tr.bySpan()
	p.next()
	require.NoError(t, p.cmd.Wait())
	requireSpans(t, truth(t, p.dir), have, 300)
	require.Empty(t, tr.Drops())
	require.Eventually(t, func() bool { return tr.Len("span_source_by_tgid") == 0 }, patience, 10*time.Millisecond,
		"the processes have ended")
}

// What is published is not to be trusted: nothing is invented, and all bytes count.
func TestMisleadingContextsAreNotBelieved(t *testing.T) {
	lib := driver(t)
	tr := start(t, lib, nil)
	p := run(t, workload(t), lib, publisher(t), "4", "20000", "hostile")
	p.found(tr)
	p.next()
	said := p.wait("done")
	requireSpans(t, truth(t, p.dir), tr.bySpan(), 1000)
	wild, err := strconv.Atoi(strings.TrimPrefix(said, "wild "))
	require.NoError(t, err)
	require.Positive(t, wild)
	require.Equal(t, map[string]uint64{"span_unreadable": uint64(wild)}, tr.Drops())
}

// A process that says that its variable is where nothing is, or something else.
func TestMisleadingPlacesAreNotBelieved(t *testing.T) {
	lib := driver(t)
	tr := start(t, lib, nil)
	p := run(t, workload(t), lib, publisher(t), "2", "200000", "")
	source := p.found(tr)
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
		require.NoError(t, tr.Maps["span_source_by_tgid"].Put(uint32(p.cmd.Process.Pid), wrong[i%len(wrong)]))
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
	// What lies there may look like a record by chance: the process's own span is
	// wrong then, and nothing else.
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

// Another program in the same process: what was known of the old one does not count.
func TestSourceOfAnotherAddressSpaceIsNotUsed(t *testing.T) {
	lib := driver(t)
	tr := start(t, lib, nil)
	p := run(t, workload(t), lib, publisher(t), "2", "5000", "")
	s := p.found(tr)
	s.StartStack++
	require.NoError(t, tr.Maps["span_source_by_tgid"].Put(uint32(p.cmd.Process.Pid), s))
	p.next()
	p.wait("done")
	have := tr.bySpan()
	require.Len(t, have, 1)
	require.Contains(t, have, key{uint32(p.cmd.Process.Pid), ""})
	require.Empty(t, tr.Drops())
}

func TestProcessesThatPublishNothingHaveNoSpans(t *testing.T) {
	lib := driver(t)
	tr := start(t, lib, nil)
	quiet := compile(t, "libquiet.so", "-shared", "-fPIC", "-Dotel_thread_ctx_v1=another", "testdata/publisher.c")
	p := run(t, workload(t), lib, quiet, "2", "5000", "")
	time.Sleep(200 * time.Millisecond)
	require.Zero(t, tr.table.of(p.cmd.Process.Pid))
	p.next()
	p.wait("done")
	have := tr.bySpan()
	require.Len(t, have, 1)
	require.Contains(t, have, key{uint32(p.cmd.Process.Pid), ""})
	require.Empty(t, tr.Drops())
}

// Without room for spans, what they allocate is counted at its stack.
func TestBeyondTheLimitBytesStayAtTheirStack(t *testing.T) {
	lib := driver(t)
	tr := start(t, lib, func(spec *ebpf.CollectionSpec) { spec.Maps["rows_by_span"].MaxEntries = 100 })
	p := run(t, workload(t), lib, publisher(t), "2", "10000", "")
	p.found(tr)
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
	require.Equal(t, 100, whole)
	require.Len(t, have, 101)
	drops := tr.Drops()
	require.Positive(t, drops["span_rows_full"])
	delete(drops, "span_rows_full")
	require.Empty(t, drops)
}
