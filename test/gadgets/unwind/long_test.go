// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// TestLongFunctionsHaveLines: the line table of a function that a compiler of models generates may have
// hundreds of KiB.
func TestLongFunctionsHaveLines(t *testing.T) {
	stats, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
	if err != nil {
		t.Fatal(err)
	}
	defer stats.Close()
	eachWithProbe(t, func(t *testing.T, p *probe, python interpreter, first int) {
		p.check(t, 3, p.run(t, python, "long", 200<<10, first))
		is, err := p.Programs["mark_sleepable"].Stats()
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%v in all for three places", is.Runtime.Round(time.Microsecond))
	})
}

// TestLinesThatAreTooFarAreCounted: a longer table than is read takes the lines, and nothing else.
func TestLinesThatAreTooFarAreCounted(t *testing.T) {
	eachWithProbe(t, func(t *testing.T, p *probe, python interpreter, first int) {
		if python.minor < 11 {
			t.Skipf("%s is older than 3.11: a table of 1 MiB needs more code than has places", python.path)
		}
		before := p.dropped(t, dropLine)
		p.run(t, python, "long", 1<<20+1, first)
		for id := first; id < first+3; id++ {
			_, s, err := p.sample(uint64(id))
			if err != nil {
				t.Fatal(err)
			}
			f := p.frames(s)
			if s.Flags != flagHasPython || len(f) < 4 || f[2].name != "longest" || f[2].line != 0 || f[3].line == 0 {
				t.Errorf("sample %d: flags %d, %+v", id-first, s.Flags, f)
			}
		}
		if n := p.dropped(t, dropLine) - before; n != 3 {
			t.Errorf("%d lines are counted as lost, want 3%s", n, p.drops(t))
		}
	})
}
