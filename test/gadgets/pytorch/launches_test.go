// SPDX-License-Identifier: Apache-2.0

package pytorch

import (
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/examples/simcuda/journal"
	"github.com/gpu-gadgets/gpu-gadgets/internal/elf/symbols"
)

// rounds of launches.py that are traced.
const rounds = 8

// call is a row of cuda_kernel.
type call struct {
	Proc      process `json:"proc"`
	Operation string  `json:"operation"`
	API       string  `json:"api"`
	Direction string  `json:"direction"`
	Kernel    string  `json:"kernel"`
	Device    int32   `json:"device"`
	Frame     string  `json:"frame"`
	Stack     string  `json:"stack"`
	Status    int32   `json:"status"`
	Calls     uint64  `json:"calls"`
	Bytes     uint64  `json:"bytes"`
	Blocks    uint64  `json:"blocks"`
	Threads   uint64  `json:"threads"`
	Nodes     uint64  `json:"nodes"`
}

// work is the key by which calls are summed. The line is empty where no line of Python called.
type work struct {
	api, kernel, direction, line string
	device, status               int32
	isCaptured                   bool
}

type workSums struct{ calls, bytes, blocks, threads, nodes uint64 }

func TestLaunchesAreExactByLineAndKernel(t *testing.T) {
	for _, situation := range []string{"eager", "parallel", "graph", "compiled"} {
		for _, attach := range []string{"before the import", "in the middle"} {
			t.Run(situation+"/"+attach, func(t *testing.T) {
				t.Parallel()
				launches(t, situation, attach != "before the import")
			})
		}
	}
}

func launches(t *testing.T, situation string, isLate bool) {
	p := begin(t, nil, "launches.py", situation)
	var imported struct{ Imported string }
	var said struct{ Rounds int }
	begun := 0 // records of before attach
	if isLate {
		p.request("", &imported)
		for range 3 {
			p.request("", &said)
		}
		begun = len(p.journal(p.PID(), "cu").Records)
	}
	a := trace[call](t, p, "cuda_kernel", "calls")
	a.attached(p.PID(), "libcuda.so")
	if !isLate {
		p.request("", &imported)
	}
	lines := map[string]bool{}
	for n := range rounds {
		p.request("", &said)
		want := wantedWork(t, p, begun)
		names := handles(t, p)
		a.until(fmt.Sprintf("rows of round %d", n), func() (bool, any) {
			d := differentWork(want, seenWork(a.rows, isLate, names))
			return len(d) == 0, strings.Join(d, "\n")
		})
		for w := range want {
			if w.kernel != "" && w.line != "" {
				lines[w.line] = true
			}
		}
	}
	require.NotEmpty(t, lines)
	t.Logf("%d lines with launches", len(lines))
	a.end(map[string]uint64{})
}

// wantedWork sums the driver's journal.
func wantedWork(t *testing.T, p *program, begun int) map[work]workSums {
	j, names, tags := p.journal(p.PID(), "cu"), kernels(t, p), p.lines(p.PID())
	sums := map[work]workSums{}
	for _, r := range j.Records[begun:] {
		if r.Type != journal.Work {
			continue
		}
		require.Contains(t, tags, r.Tag)
		w := work{api: j.APIName(r.API), direction: directions[r.Direction], device: r.Device, line: tags[r.Tag],
			status: r.Result, isCaptured: r.Captured}
		if isLaunch(w.api) {
			w.kernel = names[r.Cause]
			require.NotEmpty(t, w.kernel)
		}
		if begun > 0 {
			w.kernel = template(w.kernel)
		}
		s := sums[w]
		blocks := uint64(r.Grid[0]) * uint64(r.Grid[1]) * uint64(r.Grid[2])
		s = workSums{s.calls + 1, s.bytes + r.Size, s.blocks + blocks,
			s.threads + blocks*uint64(r.Block[0])*uint64(r.Block[1])*uint64(r.Block[2]), s.nodes}
		if strings.HasPrefix(w.api, "cuGraphLaunch") && begun == 0 {
			s.nodes += r.AllocSeq
		}
		sums[w] = s
	}
	return sums
}

// directions of a copy, by number.
var directions = []string{"", "any", "HtoD", "DtoH", "DtoD", "HtoH", "PtoP"}

func isLaunch(api string) bool {
	return strings.HasPrefix(api, "cuLaunch") && !strings.HasPrefix(api, "cuLaunchHostFunc")
}

// kernels are the names of the driver's kernels, by hash, as rows have them.
func kernels(t *testing.T, p *program) map[uint64]string {
	text, err := os.ReadFile(filepath.Join(p.dir, "kernels"))
	require.NoError(t, err)
	names := map[uint64]string{}
	for _, name := range strings.Fields(string(text)) {
		h := fnv.New64a()
		h.Write([]byte(name))
		shown := symbols.Demangle(name)
		if len(shown) > 1024 { // where ig-gpu ends a name
			shown = shown[:1024] + "…"
		}
		names[h.Sum64()] = shown
	}
	return names
}

// handles are the names of kernels as they were launched by their handles.
func handles(t *testing.T, p *program) map[string]string {
	j, names := p.journal(p.PID(), "cu"), kernels(t, p)
	byHandle := map[string]string{}
	for _, r := range j.Records {
		if r.Type == journal.Work && isLaunch(j.APIName(r.API)) {
			byHandle[fmt.Sprintf("[kernel %#x]", r.Ptr)] = names[r.Cause]
		}
	}
	return byHandle
}

// template is a kernel's name without arguments. A kernel that was named before attach gets
// the name of its host function: nvcc names lambdas otherwise there.
func template(kernel string) string {
	name, _, _ := strings.Cut(kernel, "<")
	return name
}

// seenWork sums the rows. What was named before a late attach may have a handle only; of
// graphs from before it, the number of nodes is not known.
func seenWork(rows []call, isLate bool, names map[string]string) map[work]workSums {
	sums := map[work]workSums{}
	for _, r := range rows {
		if r.Operation == "library" { // of cuBLAS, which calls the driver
			continue
		}
		w := work{api: r.API, kernel: r.Kernel, direction: r.Direction, device: r.Device, status: r.Status,
			isCaptured: r.Operation == "captured"}
		if name, ok := names[w.kernel]; ok && isLate {
			w.kernel = name
		}
		if isLate {
			w.kernel, r.Nodes = template(w.kernel), 0
		}
		w.line = ownLine(r.Frame, r.Stack)
		s := sums[w]
		sums[w] = workSums{s.calls + r.Calls, s.bytes + r.Bytes, s.blocks + r.Blocks, s.threads + r.Threads, s.nodes + r.Nodes}
	}
	return sums
}

func differentWork(want, have map[work]workSums) (text []string) {
	for k, w := range want {
		if h := have[k]; h != w {
			text = append(text, fmt.Sprintf("%+v: want %+v, have %+v", k, w, h))
		}
	}
	for k, h := range have {
		if _, ok := want[k]; !ok {
			text = append(text, fmt.Sprintf("%+v: want nothing, have %+v", k, h))
		}
	}
	slices.Sort(text)
	return text
}
