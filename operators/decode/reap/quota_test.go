// SPDX-License-Identifier: Apache-2.0

package reap

import (
	"encoding/binary"
	"os"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/ig"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/bpftest"
)

// withQuotas are two tenants: 100 has process 1 with two rows and 3 pointers, 200 process 2 with a
// row of the same stack; of four stacks no row has two.
func withQuotas(t *testing.T) *quotas {
	if os.Geteuid() != 0 {
		t.Skip("making eBPF maps needs root")
	}
	q := &quotas{
		Quotas:    Quotas{Tenants: newMap(t, 8, 72, 16), Rows: newMap(t, 24, 64, 100), Live: newMap(t, 24, 72, 100)},
		processes: newMap(t, 8, 32, 16), stacks: newMap(t, 8, 16, 100),
	}
	require.NoError(t, q.processes.Put(key(8, 1), key(32, 0, 0, 100, 0)))
	require.NoError(t, q.processes.Put(key(8, 2), key(32, 0, 0, 200, 0)))
	for _, row := range [][2]uint64{{1, 11}, {1, 12}, {2, 11}} {
		require.NoError(t, q.Rows.Put(key(24, row[0], row[1]), key(64)))
	}
	for pointer := range uint64(3) {
		require.NoError(t, q.Live.Put(key(24, 1, pointer), key(72)))
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
	q.put(t, quotaAll, quota{Used: [4]int64{40, 40, 0}})
	q.put(t, 100, quota{Used: [4]int64{39, 30, -7}, Refused: [4]uint64{5, 6, 7, 8}, PID: 42})
	q.put(t, 200, quota{Used: [4]int64{1, 1, 0}})
	q.put(t, 300, quota{Used: [4]int64{0, 9, 9}}) // its processes have ended

	refused, err := q.pass(false)
	require.NoError(t, err)
	require.Equal(t, []Refusal{{Tenant: 100, PID: 42, Stacks: 5, Rows: 6, Live: 7, Processes: 8}}, refused)
	require.Equal(t, [4]int64{40, 40, 0}, q.get(t, quotaAll).Used, "nothing was removed")

	refused, err = q.pass(true)
	require.NoError(t, err)
	require.Empty(t, refused, "reported once")
	require.Equal(t, [4]int64{4, 3, 0, 2}, q.get(t, quotaAll).Used)
	// The two stacks without a row may be this tenant's, which has made many.
	require.Equal(t, quota{Used: [4]int64{4, 2, 3, 1}, Refused: [4]uint64{5, 6, 7, 8}, PID: 42}, q.get(t, 100))
	require.Equal(t, [4]int64{1, 1, 0, 1}, q.get(t, 200).Used)
	value, err := q.Tenants.LookupBytes(uint64(300))
	require.NoError(t, err)
	require.Nil(t, value, "it leaves room for another one")
}

// cuda_kernel and py_stack hold nothing.
func TestQuotasWithoutPointers(t *testing.T) {
	q := withQuotas(t)
	q.Live = nil
	q.put(t, quotaAll, quota{})
	q.put(t, 100, quota{})
	_, err := q.pass(true)
	require.NoError(t, err)
	require.Equal(t, [4]int64{2, 2, 0, 1}, q.get(t, 100).Used)
}

// The counters of programs miss some of what is done to a table: one that is half full is counted.
func TestFullTablesAreCountedNowAndThen(t *testing.T) {
	q := withQuotas(t)
	q.put(t, 100, quota{Used: [4]int64{0, 0, 51}})
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
		"used": {8 * quotaSlots, 0}, "refused": {8 * quotaSlots, 8 * quotaSlots}, "pid": {4, 16 * quotaSlots},
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
