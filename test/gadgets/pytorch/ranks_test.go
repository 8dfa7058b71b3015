// SPDX-License-Identifier: Apache-2.0

package pytorch

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/examples/simcuda/journal"
)

// operation is a row of the data source operations, of calls of one size class.
type operation struct {
	Proc      process `json:"proc"`
	Rank      int32   `json:"rank"`
	Op        string  `json:"op"`
	Type      string  `json:"type"`
	SizeBytes uint64  `json:"size_bytes"`
	Calls     uint64  `json:"calls"`
	Bytes     uint64  `json:"bytes"`
}

// collective is an event of the data source operation_events.
type collective struct {
	Proc  process `json:"proc"`
	What  string  `json:"what"`
	Rank  int32   `json:"rank"`
	Op    string  `json:"op"`
	Type  string  `json:"type"`
	Count uint64  `json:"count"`
	Peer  int32   `json:"peer"`
	Enter uint64  `json:"enter_boot_ns"`
	Frame string  `json:"frame"`
	Stack string  `json:"stack"`
}

type operationKey struct {
	rank    int32
	op, typ string
	atLeast uint64 // bytes, a power of two
}

type operationSums struct{ calls, bytes uint64 }

var (
	collectiveTypes = []string{"int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64", "bfloat16"}
	collectiveSizes = []uint64{1, 1, 4, 4, 8, 8, 2, 4, 8, 2}
)

func TestCollectivesOfDDPAreExactByRank(t *testing.T) {
	for _, attach := range []string{"before the import", "in the middle"} {
		t.Run(attach, func(t *testing.T) {
			t.Parallel()
			ddp(t, attach != "before the import")
		})
	}
}

func ddp(t *testing.T, isLate bool) {
	p := begin(t, nil, "ranks.py")
	var said struct{ Pids []int }
	start := func() *agent[operation] {
		return trace[operation](t, p, "nccl_trace", "operations", "--events")
	}
	var a *agent[operation]
	if isLate {
		p.request("", &said)
		p.request("", &said)
		p.request("", &said)
		a = start()
	} else {
		a = start()
		p.request("", &said)
	}
	begun := map[int]int{}
	for _, pid := range said.Pids {
		a.attached(pid, "libnccl.so")
		if isLate {
			begun[pid] = len(p.journal(pid, "nccl").Records)
		}
	}
	for n := range 4 {
		p.request("", &said)
		want, calls := map[operationKey]operationSums{}, map[int][]collective{}
		ranks := map[uint32]int32{}
		for _, pid := range said.Pids {
			calls[pid] = issued(p, pid, begun[pid])
			require.NotEmpty(t, calls[pid])
			ranks[uint32(pid)] = calls[pid][0].Rank
			for _, c := range calls[pid] {
				add(want, c)
			}
		}
		require.Len(t, ranks, 2)
		a.until(fmt.Sprintf("operations of round %d", n), func() (bool, any) {
			have := map[operationKey]operationSums{}
			for _, r := range a.rows {
				if r.Op == "GroupEnd" {
					continue
				}
				k := operationKey{rank: ranks[r.Proc.PID], op: r.Op, typ: r.Type, atLeast: r.SizeBytes}
				s := have[k]
				have[k] = operationSums{s.calls + r.Calls, s.bytes + r.Bytes}
			}
			d := differentOperations(want, have)
			return len(d) == 0, strings.Join(d, "\n")
		})
		a.until(fmt.Sprintf("each call of round %d", n), func() (bool, any) {
			seen := map[int][]collective{}
			for _, text := range a.events {
				var c collective
				require.NoError(t, json.Unmarshal(text, &c))
				if c.What == "issued" {
					pid := int(c.Proc.PID)
					c.Proc, c.What, c.Frame, c.Stack = process{}, "", ownLine(c.Frame, c.Stack), ""
					if isLate {
						c.Rank = ranks[uint32(pid)]
					}
					seen[pid] = append(seen[pid], c)
				}
			}
			for pid, want := range calls {
				inOrder(seen[pid])
				if !slices.Equal(want, seen[pid]) {
					return false, fmt.Sprintf("process %d: want\n%+v\nhave\n%+v", pid, want, seen[pid])
				}
			}
			return true, nil
		})
	}
	p.Say("end")
	p.Wait()
	a.end(map[string]uint64{})
}

// verdict is a row of the data source hangs.
type verdict struct {
	Proc     process `json:"proc"`
	Reason   string  `json:"reason"`
	Rank     int32   `json:"rank"`
	Text     string  `json:"text"`
	Line     string  `json:"line"`
	UserLine string  `json:"user_line"`
}

// TestAStalledRankOfDDPIsNamedWithItsLine: autograd's thread has issued the newest
// collective, and the training loop waits for a batch.
func TestAStalledRankOfDDPIsNamedWithItsLine(t *testing.T) {
	p := begin(t, nil, "ranks.py")
	var said struct{ Pids []int }
	a := trace[operation](t, p, "nccl_trace", "operations", "--hang", "5s")
	p.request("", &said)
	for _, pid := range said.Pids {
		a.attached(pid, "libnccl.so")
	}
	p.request("", &said)
	var stalled struct{ Stalled int }
	p.request("stall", &stalled)
	var found verdict
	a.until("the verdict with its line", func() (bool, any) {
		for _, text := range a.events {
			found = verdict{}
			if err := json.Unmarshal(text, &found); err == nil && found.Reason == "missing" && found.UserLine != "" {
				return true, nil
			}
		}
		return false, a.events
	})
	t.Log(found.Text)
	require.EqualValues(t, stalled.Stalled, found.Rank)
	require.Regexp(t, `^load_batch \(ranks\.py:\d+\)$`, found.UserLine)
	require.Regexp(t, `\(multiprocessing/\w+\.py:\d+\)$`, found.Line)
	require.Contains(t, found.Text, "rank 1 of 2 is missing and sleeps, before AllReduce ")
	require.Contains(t, found.Text, "; at "+found.UserLine+", in "+found.Line+", process ")
	p.request("", &said)
	p.Say("end")
	p.Wait()
	a.end(map[string]uint64{})
}

// inOrder: the calls of a group are reported together, in any order.
func inOrder(calls []collective) {
	slices.SortFunc(calls, func(a, b collective) int { return cmp.Compare(a.Enter, b.Enter) })
	for i := range calls {
		calls[i].Enter = 0
	}
}

// issued reads NCCL's journal: what a rank asked its communicators for, in order.
func issued(p *program, pid, begun int) (calls []collective) {
	j, lines := p.journal(pid, "nccl"), p.lines(pid)
	for _, r := range j.Records[begun:] {
		name := strings.TrimPrefix(j.APIName(r.API), "nccl")
		if r.Type != journal.Collective || strings.HasPrefix(name, "Comm") || strings.HasPrefix(name, "Group") {
			continue
		}
		require.Zero(p.t, r.Result)
		if name == "Bcast" {
			name = "Broadcast"
		}
		require.Contains(p.t, lines, r.Tag)
		calls = append(calls, collective{Rank: r.Device, Op: name, Type: collectiveTypes[r.Kind], Count: r.Size,
			Peer: r.Peer, Frame: lines[r.Tag]})
	}
	return calls
}

func add(sums map[operationKey]operationSums, c collective) {
	bytes := c.Count * collectiveSizes[slices.Index(collectiveTypes, c.Type)]
	class := uint64(1)
	for class*2 <= bytes {
		class *= 2
	}
	k := operationKey{rank: c.Rank, op: c.Op, typ: c.Type, atLeast: class}
	s := sums[k]
	sums[k] = operationSums{s.calls + 1, s.bytes + bytes}
}

func differentOperations(want, have map[operationKey]operationSums) (text []string) {
	for k, w := range want {
		if have[k] != w {
			text = append(text, fmt.Sprintf("%+v: want %+v, have %+v", k, w, have[k]))
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
