// SPDX-License-Identifier: Apache-2.0

package torch

import (
	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
)

// copies finds pools of workers that were forked by a process with a pool of the same device. They have copies of its
// tensors, which their garbage collectors may delete: PyTorch reports that with what the parent had allocated. The
// programs omit those of which the parent's pool was known by then (torch_pool_is_parents() of bpf/torch/torch.h).
// The others are known by this: they have never allocated, and cannot, since CUDA does not work in them. A process with a
// pool of its own from before attach, whose parent has one of the same ordinal, looks the same until it allocates again.
type copies struct {
	pid, parent, device, out, ooms datasource.FieldAccessor
}

func newCopies(pools datasource.DataSource) (*copies, error) {
	f, err := fieldsOf(pools, "proc.pid", "proc.parent.pid", "device", "out_blocks", "ooms")
	if err != nil {
		return nil, err
	}
	return &copies{f["proc.pid"], f["proc.parent.pid"], f["device"], f["out_blocks"], f["ooms"]}, nil
}

// placed is a GPU of a process.
type placed struct {
	pid    uint32
	device int32
}

// remove removes their rows from a reading of all pools. The order of the others stays.
func (c *copies) remove(all datasource.DataArray) error {
	have := map[placed]bool{}
	for n := range all.Len() {
		have[c.at(c.pid, all.Get(n))] = true
	}
	kept := 0
	for n := range all.Len() {
		d := all.Get(n)
		out, _ := c.out.Uint64(d)
		ooms, _ := c.ooms.Uint64(d)
		if out == 0 && ooms == 0 && have[c.at(c.parent, d)] {
			continue
		}
		all.Swap(kept, n)
		kept++
	}
	return all.Resize(kept)
}

// at is the pool's GPU, of the process in a field.
func (c *copies) at(process datasource.FieldAccessor, d datasource.Data) (at placed) {
	at.pid, _ = process.Uint32(d)
	at.device, _ = c.device.Int32(d)
	return at
}
