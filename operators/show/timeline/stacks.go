// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"strconv"

	"github.com/gpu-gadgets/gpu-gadgets/internal/elf/symbols"
	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
	"github.com/gpu-gadgets/gpu-gadgets/internal/timeline/weave"
)

// maxStacks bounds what is kept; it is made again.
const maxStacks = 16384

// stacks are named stacks as a timeline needs them, each made once. It is guarded by
// who calls it.
type stacks struct {
	named interface {
		Stack(process uint64, pid uint32, id uint64) *symbols.Named
	}
	made map[*symbols.Named]*weave.Stack
}

func newStacks(named *symbols.Stacks) *stacks {
	return &stacks{named: named, made: map[*symbols.Named]*weave.Stack{}}
}

// get is the stack of an id; nil for id 0.
func (s *stacks) get(process uint64, pid uint32, id uint64) *weave.Stack {
	if id == 0 {
		return nil
	}
	n := s.named.Stack(process, pid, id)
	if made, ok := s.made[n]; ok {
		return made
	}
	if len(s.made) >= maxStacks {
		clear(s.made)
	}
	made := toStack(id, n.Stack)
	s.made[n] = made
	return made
}

func toStack(id uint64, frames stack.Stack) *weave.Stack {
	out := &weave.Stack{ID: id}
	for _, f := range frames {
		out.Labels = append(out.Labels, f.Label())
	}
	for n := len(frames) - 1; n >= 0; n-- {
		f := frames[n]
		if f.Kind != stack.KindPython {
			continue
		}
		out.Python = append(out.Python, weave.Frame{
			Name:  f.Function,
			Place: stack.ShortFile(f.File) + ":" + strconv.FormatUint(uint64(f.Line), 10),
			Key:   f.Function + "\x00" + f.File,
		})
	}
	return out
}
