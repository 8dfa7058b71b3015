// SPDX-License-Identifier: Apache-2.0

package ages

import (
	"context"
	"encoding/binary"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	gadgetcontext "github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-context"
	"github.com/stretchr/testify/require"
)

// live is struct live of bpf/memory/inflight.h, and its members' sizes.
var live = []struct {
	name string
	size uint32
}{
	{"size_bytes", 8}, {"stack", 8}, {"span", 8}, {"context", 8}, {"serial", 8}, {"doom", 8},
	{"kind", 1}, {"foreign", 1}, {"pad", 2}, {"device", 4}, {"handle", 8}, {"references", 4}, {"owner", 4},
}

func spec(without string) *ebpf.MapSpec {
	value := &btf.Struct{Name: "live"}
	for _, m := range live {
		if m.name != without {
			value.Members = append(value.Members, btf.Member{Name: m.name, Type: &btf.Int{Size: m.size}, Offset: btf.Bits(value.Size * 8)})
		}
		value.Size += m.size
	}
	return &ebpf.MapSpec{Value: value, Key: &btf.Struct{Name: "live_key", Size: 8,
		Members: []btf.Member{{Name: "process", Type: &btf.Int{Size: 8}}}}}
}

func TestLayoutIsThatOfTheObject(t *testing.T) {
	_, err := layoutOf(spec(""))
	require.NoError(t, err)
	for _, m := range live {
		_, err := layoutOf(spec(m.name))
		if m.name == "context" || m.name == "doom" || m.name == "handle" || m.name == "pad" || m.name == "owner" {
			require.NoError(t, err, "it is not used")
		} else {
			require.ErrorContains(t, err, m.name)
		}
	}
}

func TestAgeOfAnAllocation(t *testing.T) {
	l, err := layoutOf(spec(""))
	require.NoError(t, err)
	const second = uint64(time.Second)
	decode := func(madeAt, now uint64, kind, foreign uint8) (row, old, time.Duration) {
		key, value := make([]byte, 8), make([]byte, 80)
		binary.NativeEndian.PutUint64(key, 7)
		binary.NativeEndian.PutUint64(value[l.size:], 4096)
		binary.NativeEndian.PutUint64(value[l.stack:], 9)
		binary.NativeEndian.PutUint64(value[l.span:], 11)
		binary.NativeEndian.PutUint64(value[l.serial:], madeAt<<8|0xab)
		value[l.kind] = kind
		binary.NativeEndian.PutUint32(value[l.device:], 1)
		binary.NativeEndian.PutUint32(value[l.refs:], 3)
		value[l.imported] = foreign
		return l.decode(key, value, now)
	}
	r, held, age := decode(5*second, 65*second, 7, 0)
	require.Equal(t, row{7, 9, "tensor", 1, 11}, r)
	require.Equal(t, old{4096, 3}, held, "a sampled block stands for others")
	require.Equal(t, time.Minute, age)

	r, held, _ = decode(5*second, 65*second, 5, 0)
	require.Equal(t, "vmm", r.kind)
	require.Equal(t, old{4096, 1}, held, "references to physical memory are no allocations")
	r, _, _ = decode(5*second, 65*second, 5, 1)
	require.Empty(t, r.kind, "imported memory is of another process")
	r, _, _ = decode(5*second, 65*second, 99, 0)
	require.Empty(t, r.kind)

	_, _, age = decode(65*second+1, 65*second, 7, 0)
	require.Zero(t, age, "made after the time was read")
	// A machine that has been up for longer than the bits that are kept.
	long := uint64(1<<56) + 3*second
	_, _, age = decode(long-10*second, long, 7, 0)
	require.Equal(t, 10*time.Second, age)
}

// Inspektor Gadget would wait for ever for an error of Start.
func TestAFailedStartEndsTheRun(t *testing.T) {
	gc := gadgetcontext.New(t.Context(), "none")
	i := &instance{older: time.Second}
	require.NoError(t, i.Start(gc))
	require.ErrorIs(t, gc.Context().Err(), context.Canceled)
	require.NoError(t, i.Stop(gc))
	require.ErrorContains(t, i.PostStop(gc), "read how old allocations are: map")
	require.NoError(t, i.PostStop(gc), "reported once")
	require.NoError(t, i.Close(gc))
}
