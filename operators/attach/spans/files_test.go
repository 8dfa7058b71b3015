// SPDX-License-Identifier: Apache-2.0

package spans

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
)

// rebuilt are processes that have a library, which is built again and again.
type rebuilt struct {
	fakeProcesses
	library         string
	opened, checked int
}

func (p *rebuilt) Open(uint32, procmaps.Mapping) (*procmaps.File, error) {
	p.opened++
	return procmaps.NewFile(os.Open(p.library))
}

func (p *rebuilt) Identities(_ uint32, all []procmaps.Mapping) []string {
	out := make([]string, len(all))
	for i := range all {
		p.checked++
		if f, err := procmaps.NewFile(os.Open(p.library)); err == nil {
			out[i] = f.Identity()
			f.Close()
		}
	}
	return out
}

// build makes the library, in the same inode each time.
func (p *rebuilt) build(t *testing.T, args ...string) {
	t.Helper()
	made := filepath.Join(t.TempDir(), "libx.so")
	out, err := exec.Command("gcc", append([]string{"-shared", "-fPIC", "-o", made}, args...)...).CombinedOutput()
	require.NoError(t, err, string(out))
	b, err := os.ReadFile(made)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(p.library, b, 0o600))
}

// code is the mapping of the library's code, where a process has it.
func (p *rebuilt) code(t *testing.T, start uint64) procmaps.Mapping {
	t.Helper()
	f, err := elf.Open(p.library)
	require.NoError(t, err)
	defer f.Close()
	for _, s := range f.Progs {
		if s.Type == elf.PT_LOAD && s.Flags&elf.PF_X != 0 {
			return procmaps.Mapping{Start: start, End: start + 1<<12, Offset: s.Off &^ 0xfff, Device: 1, Inode: 7, Path: p.library}
		}
	}
	require.Fail(t, "no code")
	return procmaps.Mapping{}
}

const publisher = "../../../test/gadgets/spans/testdata/publisher.c"

// follow returns a follower of such processes, and what it finds in one, which has the code mapped twice.
func (p *rebuilt) follow(t *testing.T) (f *Follower, find func(pid uint32) Source) {
	p.library = filepath.Join(t.TempDir(), "libx.so")
	f = NewFollower(Config{Processes: p})
	return f, func(pid uint32) Source {
		t.Helper()
		m := p.code(t, uint64(pid)<<20)
		other := m
		other.Start, other.End = m.End, m.End+1<<12
		source, _ := f.find(pid, uint64(pid), []procmaps.Mapping{m, other}, false)
		return source
	}
}

// A library is built again, with the variable, and has the inode that it had.
func TestALibraryThatIsBuiltAgainIsReadAgain(t *testing.T) {
	p := &rebuilt{}
	_, find := p.follow(t)
	p.build(t, publisher, "-Dotel_thread_ctx_v1=another")
	require.Zero(t, find(1))
	p.build(t, publisher)
	require.NotZero(t, find(2).Access)
	p.build(t, publisher, "-Dotel_thread_ctx_v1=another")
	require.Zero(t, find(3))
}

// The mappings of a process are read with each library that it maps: a file is checked once for each process, and read once
// for all of them, at the cost of their tenants.
func TestFilesAreReadOnce(t *testing.T) {
	p := &rebuilt{}
	f, find := p.follow(t)
	p.build(t, publisher)
	for range 10 {
		find(1)
	}
	require.Equal(t, []int{1, 1}, []int{p.checked, p.opened})
	require.Equal(t, checkCost+fileCost, f.cost)
	for range 10 {
		find(2)
	}
	require.Equal(t, []int{2, 1}, []int{p.checked, p.opened})
	require.Equal(t, 2*checkCost+fileCost, f.cost)
}
