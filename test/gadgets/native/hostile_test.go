// SPDX-License-Identifier: Apache-2.0

package native

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/tracer/unwinder"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/simulated"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/tracer"
)

// TestALibraryThatIsReplacedGivesNoWrongFrame: another build of the same length, at the same path
// and, by and by, at the same addresses.
func TestALibraryThatIsReplacedGivesNoWrongFrame(t *testing.T) {
	driver := simulated.DriverCopy(t)
	program := build(t, "replaced.cpp", "-O2")
	var builds []string
	var size int64
	for _, words := range []int{4, 10} {
		path := filepath.Join(t.TempDir(), "middle.so")
		out, err := exec.Command("g++", "-O2", "-fomit-frame-pointer", "-shared", "-fPIC", "-DWORDS="+strconv.Itoa(words),
			"-o", path, "testdata/middle.cpp").CombinedOutput()
		require.NoError(t, err, "%s", out)
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.True(t, size == 0 || size == info.Size(), "builds of %d and %d bytes are told apart by that", size, info.Size())
		size = info.Size()
		builds = append(builds, path)
	}
	const rounds = 20
	tr, u := start(t, driver, memory)
	for _, how := range []string{"renamed", "rewritten", "loaded"} {
		t.Run(how, func(t *testing.T) {
			p := run(t, program, driver, how, strconv.Itoa(rounds), filepath.Join(t.TempDir(), "library.so"), builds[0], builds[1])
			want := p.goOn(t)
			r := compare(t, tr.RowsOf(p.Process.Pid), p.Process.Pid, want)
			t.Logf("%d calls: %d complete, %d wrong, cut %v; %+v", r.calls, r.complete, r.wrong, r.cut, u.Stats())
			assert.Equal(t, 20*rounds, r.calls)
			assert.Zero(t, r.wrong)
			assert.Greater(t, r.complete, r.calls/2, "rules of each build are read")
		})
	}
}

// TestTooLittleMemoryCutsStacksAndSaysSo: pages are removed and read again all the time; memory is
// as bounded as with enough of it, and no frame is wrong.
func TestTooLittleMemoryCutsStacksAndSaysSo(t *testing.T) {
	const pages, calls = 12, 3000
	driver := simulated.DriverCopy(t)
	tr, u := start(t, driver, pages*unwinder.PageMemory)
	p := run(t, build(t, "paths.cpp", "-O2"), driver, strconv.Itoa(calls), "1")
	want := p.goOn(t)
	r := compare(t, tr.Rows(), p.Process.Pid, want)
	stats := u.Stats()
	t.Logf("%d calls: %d complete, %d wrong, cut %v; %+v", r.calls, r.complete, r.wrong, r.cut, stats)
	assert.Zero(t, r.wrong)
	assert.NotZero(t, r.complete)
	assert.NotZero(t, stats.Evicted)
	assert.LessOrEqual(t, stats.Pages, pages)
	assert.LessOrEqual(t, tr.Len(unwinder.PagesMap), pages)
	assert.Greater(t, tr.Drops()["native_not_loaded"], uint64(calls/100), "stacks that are cut for it are counted")
}

// TestRequestsForRulesAreBounded: no rules are read meanwhile, as where a tenant's code is more than can be read.
func TestRequestsForRulesAreBounded(t *testing.T) {
	const pages, most = 3000, 1024 // UNWIND_REQUESTS
	const record = 8 + 64          // of struct unwind_miss in the ring
	require.Less(t, most, unwinder.RingBytes/record, "others have room in the ring")
	driver := simulated.DriverCopy(t)
	tr := tracer.Start(t, driver, tracer.Options{Edit: func(spec *tracer.Spec) { tracer.AllowRules(t, spec, memory) }})
	program := build(t, "pages.cpp", "-O1", "-std=c++17", "-DPAGES="+strconv.Itoa(pages))
	p := run(t, program, driver)
	began := tracer.Second()
	p.goOn(t)
	allowed := most * (tracer.Second() - began + 1)
	require.LessOrEqual(t, tr.Len(unwinder.AskedMap), allowed)
	require.GreaterOrEqual(t, tr.Len(unwinder.AskedMap), most/2)
	require.GreaterOrEqual(t, tr.Refused(tracer.QuotaRules), pages-allowed)
}
