// SPDX-License-Identifier: Apache-2.0

package reap

import (
	"cmp"
	"encoding/binary"
	"os"
	"regexp"
	"strconv"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/ig"
	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/bpftest"
)

// withQuotas are two tenants: 100 has process 1 with two rows and 3 pointers, 200 process 2 with a
// row of the same stack; of four stacks no row has two.
func withQuotas(t *testing.T) *quotas {
	if os.Geteuid() != 0 {
		t.Skip("making eBPF maps needs root")
	}
	q := &quotas{
		Quotas: FindQuotas(func(name string) *ebpf.Map {
			return map[string]*ebpf.Map{"quotas_by_tenant": newMap(t, 8, 16*quotaSlots+8*quotaRates+8, 16), "rows_by_stack": newMap(t, 24, 64, 100),
				"live_by_pointer": newMap(t, 24, 72, 100)}[name]
		}),
		processes: newMap(t, 8, 32, 16), stacks: newMap(t, 8, 16, 100),
	}
	require.NoError(t, q.processes.Put(key(8, 1), key(32, 0, 0, 100, 0)))
	require.NoError(t, q.processes.Put(key(8, 2), key(32, 0, 0, 200, 0)))
	for _, row := range [][2]uint64{{1, 11}, {1, 12}, {2, 11}} {
		require.NoError(t, q.Tables[quotaRows].Put(key(24, row[0], row[1]), key(64)))
	}
	for pointer := range uint64(3) {
		require.NoError(t, q.Tables[quotaLive].Put(key(24, 1, pointer), key(72)))
	}
	for stack := range uint64(4) {
		require.NoError(t, q.stacks.Put(key(8, 11+stack), key(16)))
	}
	return q
}

func (q *quotas) put(t *testing.T, tenant uint64, is quota) {
	t.Helper()
	value, err := binary.Append(nil, binary.NativeEndian, is)
	require.NoError(t, err)
	require.NoError(t, q.Tenants.Put(tenant, value))
}

func (q *quotas) get(t *testing.T, tenant uint64) (is quota) {
	t.Helper()
	value, err := q.Tenants.LookupBytes(tenant)
	require.NoError(t, err)
	_, err = binary.Decode(value, binary.NativeEndian, &is)
	require.NoError(t, err)
	return is
}

func TestQuotasAreWhatIsLeft(t *testing.T) {
	q := withQuotas(t)
	q.put(t, quotaAll, quota{Used: [quotaSlots]int64{40, 40, 0}})
	q.put(t, 100, quota{Used: [quotaSlots]int64{39, 30, -7}, Refused: [quotaSlots]uint64{5, 6, 7, 8}, PID: 42})
	q.put(t, 200, quota{Used: [quotaSlots]int64{1, 1, 0}})
	q.put(t, 300, quota{Used: [quotaSlots]int64{0, 9, 9}}) // its processes have ended

	refused, err := q.pass(false)
	require.NoError(t, err)
	require.Equal(t, []Refusal{{Tenant: 100, PID: 42, Entries: [quotaSlots]uint64{5, 6, 7, 8}}}, refused)
	require.Equal(t, [quotaSlots]int64{40, 40, 0}, q.get(t, quotaAll).Used, "nothing was removed")

	refused, err = q.pass(true)
	require.NoError(t, err)
	require.Empty(t, refused, "reported once")
	require.Equal(t, [quotaSlots]int64{4, 3, 0, 2}, q.get(t, quotaAll).Used)
	// The two stacks without a row may be this tenant's, which has made many.
	require.Equal(t, quota{Used: [quotaSlots]int64{4, 2, 3, 1}, Refused: [quotaSlots]uint64{5, 6, 7, 8}, PID: 42}, q.get(t, 100))
	require.Equal(t, [quotaSlots]int64{1, 1, 0, 1}, q.get(t, 200).Used)
	value, err := q.Tenants.LookupBytes(uint64(300))
	require.NoError(t, err)
	require.Nil(t, value, "it leaves room for another one")
}

// cuda_kernel and py_stack hold nothing.
func TestQuotasWithoutPointers(t *testing.T) {
	q := withQuotas(t)
	q.Tables[quotaLive] = nil
	q.put(t, quotaAll, quota{})
	q.put(t, 100, quota{})
	_, err := q.pass(true)
	require.NoError(t, err)
	require.Equal(t, [quotaSlots]int64{2, 2, 0, 1}, q.get(t, 100).Used)
}

// nccl_trace: communicators name stacks in their rings.
func TestQuotasOfCommunicators(t *testing.T) {
	q := withQuotas(t)
	q.Tables = [quotaSlots]*ebpf.Map{}
	q.Tables[quotaCommunicators] = newMap(t, 16, 64, 100)
	q.Tables[quotaOperations] = newMap(t, 24, 64, 100)
	require.NoError(t, q.Tables[quotaCommunicators].Put(key(16, 1, 7), key(64, 5, 11, 12)))
	require.NoError(t, q.Tables[quotaCommunicators].Put(key(16, 2, 7), key(64, 12)))
	require.NoError(t, q.Tables[quotaOperations].Put(key(24, 2, 7), key(64)))
	for tenant := range uint64(3) {
		q.put(t, 100*tenant, quota{Refused: [quotaSlots]uint64{quotaCommunicators: 100 * tenant}})
	}
	refused, err := q.pass(true)
	require.NoError(t, err)
	require.Len(t, refused, 2)
	require.Equal(t, [quotaSlots]int64{quotaStacks: 2, quotaProcesses: 1, quotaCommunicators: 1}, q.get(t, 100).Used)
	require.Equal(t, [quotaSlots]int64{quotaStacks: 1, quotaProcesses: 1, quotaCommunicators: 1, quotaOperations: 1}, q.get(t, 200).Used)
	require.Equal(t, [quotaSlots]int64{quotaStacks: 4, quotaProcesses: 2}, q.get(t, quotaAll).Used, "of the others tenants have shares of their own")
}

// Names of Python functions are counted by the stacks that have them, those of kernels by rows.
func TestQuotasOfNames(t *testing.T) {
	q := withQuotas(t)
	q.stacks, q.symbols, q.kernels = newMap(t, 8, stack.StackBytes, 16), newMap(t, 8, symbolBytes, 100), newMap(t, 8, 64, 100)
	put := func(id uint64, symbols ...uint64) {
		require.NoError(t, q.stacks.Put(key(8, id), stackOf(symbols...)))
	}
	put(11, 21, 22)
	put(12, 22, 23)
	for symbol := range uint64(5) {
		require.NoError(t, q.symbols.Put(key(8, 21+symbol), key(symbolBytes)))
	}
	for kernel := range uint64(3) {
		require.NoError(t, q.kernels.Put(key(8, 31+kernel), key(64)))
	}
	require.NoError(t, q.Tables[quotaRows].Put(key(24, 2, 11, 31), key(64)))
	require.NoError(t, q.Tables[quotaRows].Put(key(24, 1, 11, 32), key(64)))
	q.put(t, quotaAll, quota{Used: [quotaSlots]int64{quotaSymbols: 51, quotaKernels: 51}})
	q.put(t, 100, quota{Used: [quotaSlots]int64{quotaSymbols: 4}})
	q.put(t, 200, quota{})
	_, err := q.pass(true)
	require.NoError(t, err)
	all, one, two := q.get(t, quotaAll).Used, q.get(t, 100).Used, q.get(t, 200).Used
	require.Equal(t, []int64{5, 4, 2}, []int64{all[quotaSymbols], one[quotaSymbols], two[quotaSymbols]}, "of two no stack has, one may be the first one's")
	require.Equal(t, []int64{3, 1, 1}, []int64{all[quotaKernels], one[quotaKernels], two[quotaKernels]})

	q.put(t, 100, quota{Used: [quotaSlots]int64{quotaSymbols: 40}})
	q.put(t, 300, quota{Used: [quotaSlots]int64{quotaSymbols: 40}}) // its processes have ended
	_, err = q.pass(true)
	require.NoError(t, err)
	require.EqualValues(t, 40, q.get(t, 100).Used[quotaSymbols], "there is room: they are not counted again")
	value, err := q.Tenants.LookupBytes(uint64(300))
	require.NoError(t, err)
	require.Nil(t, value)
}

// stackOf are the bytes of a stack of Python functions.
func stackOf(symbols ...uint64) []byte {
	b := make([]byte, stack.StackBytes)
	binary.NativeEndian.PutUint16(b[6:], uint16(len(symbols)))
	for i, symbol := range symbols {
		binary.NativeEndian.PutUint64(b[stack.StackPythonOffset+16*i:], symbol)
	}
	return b
}

// quotaNames are those of enum quota_table, without QUOTA_.
var quotaNames = [...]string{
	quotaStacks: "STACKS", quotaRows: "ROWS", quotaLive: "LIVE", quotaProcesses: "PROCESSES", quotaSymbols: "SYMBOLS",
	quotaKernels: "KERNELS", quotaUnknown: "UNKNOWN", quotaTotals: "TOTALS", quotaCommunicators: "COMMUNICATORS",
	quotaOperations: "OPERATIONS", quotaPeers: "PEERS", quotaStreams: "STREAMS", quotaContexts: "CONTEXTS",
	quotaPrimaries: "PRIMARIES", quotaHandles: "HANDLES", quotaMappings: "MAPPINGS", quotaPools: "POOLS",
	quotaThreads: "THREADS", quotaInstances: "INSTANCES", quotaSpans: "SPANS", quotaOwners: "OWNERS", quotaSums: "SUMS",
	quotaRules: "RULES", quotaFunctions: "FUNCTIONS", quotaFacts: "FACTS", quotaEvents: "EVENTS",
	quotaOOMs: "OOMS", quotaPasses: "PASSES", quotaFailures: "FAILURES",
}

// What one tenant may have is the same in programs and in user space.
func TestQuotaParts(t *testing.T) {
	parts := map[string]float64{}
	facts, err := os.ReadFile("../../../bpf/process/facts.h")
	require.NoError(t, err)
	require.Contains(t, string(facts), "define FACT_TAKE_KNOWN(table, entries) quota_take_own(table, (entries) - (entries) / 4)")
	for _, path := range []string{"memory/live.h", "nccl/communicators.h", "call/context.h", "memory/vmm.h", "torch/torch.h",
		"nccl/peers.h", "call/thread.h", "memory/instance.h", "nccl/memory/communicators.h"} {
		header, err := os.ReadFile("../../../bpf/" + path)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile(`FACT_(?:TAKE|ADD)(?:_KNOWN)?\((?:\S+, )?QUOTA_(\w+), MAX_`).FindAllStringSubmatch(string(header), -1) {
			parts[m[1]] = 3. / 4
		}
		for _, m := range regexp.MustCompile(`(?m)^#define (\w+)_OWN \(MAX_\w+ / (\d)(?: \* (\d))?\)$`).FindAllStringSubmatch(string(header), -1) {
			divisor, err := strconv.ParseFloat(m[2], 64)
			require.NoError(t, err)
			factor, err := strconv.ParseFloat(cmp.Or(m[3], "1"), 64)
			require.NoError(t, err)
			parts[m[1]] = factor / divisor
		}
	}
	want := map[string]float64{}
	for slot, name := range quotaNames {
		if own := quotaTables[slot].own; own > 0 {
			want[name] = own
		}
	}
	require.Len(t, want, 13)
	require.Equal(t, want, parts)
}

// The slots are in the order of the programs' enum.
func TestQuotaSlots(t *testing.T) {
	header, err := os.ReadFile("../../../bpf/process/quota.h")
	require.NoError(t, err)
	var names []string
	for _, m := range regexp.MustCompile(`(?m)^\tQUOTA_(\w+),`).FindAllSubmatch(header, -1) {
		names = append(names, string(m[1]))
	}
	require.Equal(t, append(quotaNames[:], "TABLES"), names)
}

func TestRefusalsAreNamed(t *testing.T) {
	require.Equal(t, "3 stacks, 2 pointers (under [unknown])", Refusal{Entries: [quotaSlots]uint64{quotaStacks: 3, quotaLive: 2}}.text())
	require.Equal(t, "1 rows (under [unknown]), 4 calls of new processes, 9 calls of new communicators (in no row), "+
		"5 calls on new streams (when their operations are done is not known)",
		Refusal{Entries: [quotaSlots]uint64{quotaRows: 1, quotaProcesses: 4, quotaCommunicators: 9, quotaStreams: 5}}.text())
}

// The counters of programs miss some of what is done to a table: one that is half full is counted.
func TestFullTablesAreCountedNowAndThen(t *testing.T) {
	q := withQuotas(t)
	q.put(t, 100, quota{Used: [quotaSlots]int64{0, 0, 51}})
	for range correctFull - 1 {
		_, err := q.pass(false)
		require.NoError(t, err)
		require.EqualValues(t, 51, q.get(t, 100).Used[quotaLive])
	}
	_, err := q.pass(false)
	require.NoError(t, err)
	require.EqualValues(t, 3, q.get(t, 100).Used[quotaLive])
}

func TestQuotasHaveTheLayoutOfThePrograms(t *testing.T) {
	spec, err := ebpf.LoadCollectionSpec(bpftest.Compile(t, "../../../gadgets/cuda_alloc/program.bpf.c", "-mcpu=v3"))
	require.NoError(t, err)
	of := spec.Maps["quotas_by_tenant"].Value
	size, err := btf.Sizeof(of)
	require.NoError(t, err)
	require.Equal(t, binary.Size(quota{}), size)
	for name, want := range map[string]struct{ size, offset int }{
		"used": {8 * quotaSlots, 0}, "refused": {8 * quotaSlots, 8 * quotaSlots},
		"pid": {4, 16*quotaSlots + 8*quotaRates},
	} {
		at, err := ig.Offset(of, name, want.size)
		require.NoError(t, err)
		require.Equal(t, want.offset, at, name)
	}
	process := spec.Maps["processes_by_id"].Value
	at, err := ig.Offset(process, "tenant", 8)
	require.NoError(t, err)
	size, err = btf.Sizeof(process)
	require.NoError(t, err)
	require.Equal(t, size-16, at)
}
