// SPDX-License-Identifier: Apache-2.0

package sink

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"

	"github.com/gpu-gadgets/gpu-gadgets/internal/format/snapshot"
	"github.com/gpu-gadgets/gpu-gadgets/internal/ig"
	"github.com/gpu-gadgets/gpu-gadgets/internal/ig/mapiter"
)

const poolsMap = "torch_pools"

// torchPools has what PyTorch reports of its pools (bpf/torch/torch.h). Nil: the programs are
// those for Linux 5.10, which have no such map.
type torchPools struct {
	ebpf                                          *ebpf.Map
	process, device, reserved, allocated, isKnown int
}

func newTorchPools(gc operators.GadgetContext) (*torchPools, error) {
	spec, err := ig.MapSpec(gc, poolsMap)
	if errors.Is(err, ig.ErrAbsent) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	p := &torchPools{}
	return p, errors.Join(
		ig.Offsets(spec.Key, ig.At(&p.process, "process", 8), ig.At(&p.device, "device", 4)),
		ig.Offsets(spec.Value, ig.At(&p.reserved, "reserved_bytes", 8), ig.At(&p.allocated, "allocated_bytes", 8),
			ig.At(&p.isKnown, "has_totals", 8)),
	)
}

func (p *torchPools) start(gc operators.GadgetContext) (err error) {
	if p != nil {
		p.ebpf, err = ig.Map(gc, poolsMap)
	}
	return err
}

// read calls f with each pool that PyTorch reports on.
func (p *torchPools) read(f func(process uint64, device int32, pool snapshot.Pool)) error {
	if p == nil {
		return nil
	}
	long := binary.NativeEndian.Uint64
	if err := mapiter.Entries(p.ebpf, func(key, value []byte) {
		if long(value[p.isKnown:]) != 0 {
			f(long(key[p.process:]), int32(binary.NativeEndian.Uint32(key[p.device:])),
				snapshot.Pool{Reserved: long(value[p.reserved:]), Allocated: long(value[p.allocated:])})
		}
	}); err != nil {
		return fmt.Errorf("read %s: %w", poolsMap, err)
	}
	return nil
}
