// SPDX-License-Identifier: Apache-2.0

package numa

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestStatus(t *testing.T) {
	p := parseStatus([]byte("Name:\tVmRSS:\t1 kB\nVmLck:\t    8 kB\nVmRSS:\t  7112 kB\nRssAnon:\t 3300 kB\nRssFile:\t 3812 kB\n" +
		"Threads:\t3\nCpus_allowed_list:\t0-1,4\nMems_allowed_list:\t0\nvoluntary_ctxt_switches:\t150\nnonvoluntary_ctxt_switches:\t545\n"))
	require.Equal(t, Process{
		RSSBytes: 7112 << 10, FileBytes: 3812 << 10, AnonBytes: 3300 << 10, LockedBytes: 8 << 10,
		Threads: 3, Voluntary: 150, Involuntary: 545, CPUsAllowed: "0-1,4", NodesAllowed: "0",
	}, p)
}

func TestPages(t *testing.T) {
	pages, err := parsePages(strings.NewReader(`5581 default file=/usr/bin/N9=9 mapped=23 N0=22 N1=1 kernelpagesize_kB=4
7f00 default anon=512 dirty=2 N1=2 kernelpagesize_kB=2048
7ffd bind:0 stack anon=3 N0=3
7fff default
`))
	require.NoError(t, err)
	require.Equal(t, map[string]uint64{"0": 25 * 4096, "1": 4096 + 4<<20}, pages)
}

// TestThisProcess: the files of this kernel are read; they agree with each other.
func TestThisProcess(t *testing.T) {
	pid := uint32(os.Getpid())
	p, err := Status("/proc", pid)
	require.NoError(t, err)
	require.NotZero(t, p.RSSBytes)
	require.NotZero(t, p.Threads)
	require.NotEmpty(t, p.CPUsAllowed)
	_, err = Status("/proc", 1<<30)
	require.ErrorIs(t, err, fs.ErrNotExist)
	pages, err := Pages("/proc", pid)
	if os.IsNotExist(err) {
		t.Skipf("this kernel is without NUMA: %v", err)
	}
	require.NoError(t, err)
	require.NotEmpty(t, pages)
	require.NotEmpty(t, Nodes("/sys"))
}

func TestNodes(t *testing.T) {
	dir := t.TempDir()
	node := filepath.Join(dir, "devices/system/node/node1")
	require.NoError(t, os.MkdirAll(node, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(node, "meminfo"), []byte("Node 1 MemTotal: 1000 kB\nNode 1 MemFree:  600 kB\nNode 1 FilePages: 300 kB\nodd\n"), 0o600))
	require.Equal(t, []Node{{Node: 1, TotalBytes: 1000 << 10, FreeBytes: 600 << 10, FileBytes: 300 << 10}}, Nodes(dir))
	require.Empty(t, Nodes(t.TempDir()))
}

// Names of files in numa_maps are the process's own.
func FuzzParse(f *testing.F) {
	f.Add([]byte("VmRSS:\t 12 kB\nThreads:\t3\nCpus_allowed_list:\t0-1\n"))
	f.Add([]byte("7f12 default file=/x\\040N0=9 mapped=3 N0=2 N1=1 kernelpagesize_kB=4\n"))
	f.Add([]byte("7f12 default N65535=1099511627775 kernelpagesize_kB=4294967295\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		parseStatus(b)
		pages, err := parsePages(bytes.NewReader(b))
		if err != nil {
			require.Nil(t, pages)
		}
		for node := range pages {
			require.Regexp(t, `^[0-9]{1,5}$`, node)
		}
	})
}
