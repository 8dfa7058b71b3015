// SPDX-License-Identifier: Apache-2.0

package spans

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/examples/simcuda/journal"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
	"github.com/gpu-gadgets/gpu-gadgets/operators/attach/spans"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/tracer"
)

const waitLimit = 120 * time.Second

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

// start traces with room for so many rows; 0: as the product.
func start(t *testing.T, library string, rows uint32) *traced {
	t.Helper()
	var flags []string
	if rows > 0 {
		flags = []string{fmt.Sprint("-DMAX_SPAN_ROWS=", rows)}
	}
	tr := tracer.Start(t, library, tracer.Options{Flags: flags, Edit: func(spec *ebpf.CollectionSpec) {
		require.NoError(t, spec.Variables["span_ids"].Set(true))
		spans.Enlarge(spec.Maps)
		if rows > 0 {
			spec.Maps["rows_by_span"].MaxEntries = rows
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
	*subject.Process
	dir string // journals
}

func run(t *testing.T, arguments ...string) *program {
	t.Helper()
	return runCommand(t, exec.Command(arguments[0], arguments[1:]...))
}

func runCommand(t *testing.T, cmd *exec.Cmd) *program {
	t.Helper()
	p := &program{dir: t.TempDir()}
	cmd.Env = append(os.Environ(), "SIMCUDA_JOURNAL="+p.dir)
	p.Process = subject.Start(t, cmd)
	p.wait("ready")
	return p
}

// wait reads lines up to one, and returns the one before it.
func (p *program) wait(line string) (before string) {
	for text := p.Line(); text != line; text = p.Line() {
		before = text
	}
	return before
}

func (p *program) next() { p.Say("") }

// found waits until the follower has found the program's variable.
func (p *program) found(t *testing.T, tr *traced) spans.Source {
	t.Helper()
	require.Eventually(t, func() bool { return tr.table.of(p.PID()).Access != 0 }, waitLimit, 10*time.Millisecond,
		"nothing was found in the process")
	return tr.table.of(p.PID())
}

// key has the fields that rows and journal have in common.
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
		at := key{k.Process.PID, span} // rows of several kinds have it
		all[at] = all[at].plus(counts{s.AllocBytes, s.AllocObjects, s.FreedBytes, s.FreedObjects, s.InUseBytes()})
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
	require.GreaterOrEqual(t, len(want), least, "too few spans for this test")
	t.Logf("%d spans are exact", len(want))
}
