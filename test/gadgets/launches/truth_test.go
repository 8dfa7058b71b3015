// SPDX-License-Identifier: Apache-2.0

package launches

import (
	"fmt"
	"hash/fnv"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/examples/simcuda/journal"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/compare"
)

// Bits of a kernel's number; see bpf/launch/names.h.
const (
	named = 1 << 63
	stub  = 1 << 62
)

// key identifies a row: the kernel by the hash of its name, or by its handle.
type key struct {
	stack, api, direction string
	kernel                uint64
	result, device        int32
	isCaptured            bool
}

// sums are the counters of a row.
type sums struct {
	calls, bytes, blocks, threads, nodes uint64
	shapes                               map[shape]bool
	hostNS                               uint64 // of the journal: within the call
}

type shape struct {
	grid, block [3]uint32
	shared      uint32
}

func frame(function, file string, line uint32) string {
	return fmt.Sprintf("%s %s:%d", function, file, line)
}

func nameHash(name string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(name))
	return h.Sum64()
}

var directions = []string{"", "any", "HtoD", "DtoH", "DtoD", "HtoH", "PtoP"}

// launching are the functions that name a kernel.
var launching = regexp.MustCompile(`^(cu|hip(Ext|Module|ExtModule|HccModule|Drv)?)Launch`)

func isLaunch(api string) bool { return launching.MatchString(api) && !isHost(api) }
func isHost(api string) bool   { return strings.Contains(api, "LaunchHostFunc") }

// isByHandle: HIP's launches of a kernel that the program has registered.
func isByHandle(api string) bool {
	return strings.HasPrefix(api, "hip") && isLaunch(api) && !strings.Contains(api, "Module") && !strings.Contains(api, "Drv")
}

// registers is no call of a row's: it teaches a name.
const registers = "__hipRegisterFunction"

// apiBytes is API_BYTES of bpf/launch/events.h: one name of HIP is longer.
const apiBytes = 40

// multi is how many launches one call makes: the workload's.
func multi(api string) uint64 {
	if strings.Contains(api, "MultiDe") {
		return 2
	}
	return 1
}

// truth returns the sums of the journals in a directory.
type truth struct {
	journals []*journal.Journal
	stacks   compare.Truth
	// names by handle, by process, as the records go on.
	names map[uint64]uint64
}

func readTruth(t *testing.T, dir string) *truth {
	t.Helper()
	journals, err := journal.ReadDir(dir)
	require.NoError(t, err)
	stacks, err := compare.ReadTruth(dir)
	require.NoError(t, err)
	return &truth{journals: journals, stacks: stacks}
}

// each calls f for every call, in the driver's order, with its key.
func (tr *truth) each(f func(r *journal.Record, k key)) {
	for _, j := range tr.journals {
		tr.names = map[uint64]uint64{}
		for i := range j.Records {
			r := &j.Records[i]
			if r.Type != journal.Work {
				continue
			}
			api := j.APIName(r.API)
			if api == registers {
				tr.names[r.Ptr] = r.Cause
				continue
			}
			k := key{
				api: api[:min(len(api), apiBytes-1)], direction: directions[r.Direction], device: r.Device, result: r.Result, isCaptured: r.Captured,
			}
			if multi(api) > 1 {
				k.device = -1 // the streams are of several
			}
			switch {
			case isHost(api):
				k.kernel = r.Ptr | stub
			case isLaunch(api):
				k.kernel = r.Ptr
				if isByHandle(api) {
					k.kernel |= stub
				}
				if name, ok := tr.names[r.Ptr]; ok {
					k.kernel = name
				}
			case r.Result == journal.Success && r.Cause != 0 && r.Ptr != 0:
				tr.names[r.Ptr] = r.Cause
			}
			var lines []string
			for _, f := range tr.stacks[compare.Caller{PID: j.PID, StartTicks: j.StartTicks, Image: j.Image, Tag: r.Tag}] {
				lines = append(lines, frame(f.Function, f.File, f.Line))
			}
			k.stack = strings.Join(lines, "; ")
			f(r, k)
		}
	}
}

func (tr *truth) sums() map[key]*sums {
	all := map[key]*sums{}
	tr.each(func(r *journal.Record, k key) {
		s := all[k]
		if s == nil {
			s = &sums{shapes: map[shape]bool{}}
			all[k] = s
		}
		s.calls++
		s.bytes += r.Size
		if strings.Contains(k.api, "GraphLaunch") {
			s.nodes += r.AllocSeq
		}
		s.hostNS += r.TimeNS - r.StartNS
		blocks := multi(k.api) * uint64(r.Grid[0]) * uint64(r.Grid[1]) * uint64(r.Grid[2])
		s.blocks += blocks
		s.threads += blocks * uint64(r.Block[0]) * uint64(r.Block[1]) * uint64(r.Block[2])
		s.shapes[shape{r.Grid, r.Block, r.SharedBytes}] = true
	})
	return all
}

// kernel is the number of a row's kernel as keys have it.
func (g *gadget) kernel(function uint64) uint64 {
	name, _, ok := g.name(function)
	if !ok {
		require.Zero(g.t, function&named, "a kernel has a number and no name")
		return function
	}
	return nameHash(name)
}
