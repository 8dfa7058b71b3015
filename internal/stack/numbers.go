// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"encoding/binary"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/internal/stack/recent"
)

// maxStacks and maxFrames bound what Numbers keeps: twice what the kernel's tables hold.
const (
	maxStacks = 32 << 10
	maxFrames = 64 << 10
	// More than these are kept for so long: a daemon that sees a process each second would have the stacks of
	// the last nine hours.
	fewStacks  = 1 << 10
	keepStacks = 10 * time.Minute
)

// Numbers numbers frames and stacks, each from 0 on, and equal ones alike. To find
// one by its texts is most of an encoder's work, and what it encodes next has mostly
// the same ones: they are looked up once and have their number from then on.
//
// The zero value is ready. It must not be used concurrently, and stacks that it was
// given must not change.
type Numbers struct {
	frames  []Frame
	byFrame map[Frame]int32

	stacks [][]int32 // numbers of frames, leaf first
	// Rows of one stack share it, so it is searched for by its place first; a place that is
	// not used any more is forgotten, as it keeps the stack in memory.
	byPlace   *recent.Cache[place, int32]
	byContent map[string]int32
	content   []byte
	began     time.Time
}

// place is where a stack lies.
type place struct {
	first *Frame
	depth int
}

// Full reports whether there are more numbers than are needed at once, or many old ones: time for new
// Numbers. Existing ones are kept.
func (n *Numbers) Full() bool {
	return len(n.stacks) >= maxStacks || len(n.frames) >= maxFrames || len(n.stacks) > fewStacks && time.Since(n.began) > keepStacks
}

// Stack is the number of a stack.
func (n *Numbers) Stack(s Stack) int32 {
	at := place{depth: len(s)}
	if len(s) > 0 {
		at.first = &s[0]
	}
	if n.byPlace == nil {
		n.byFrame, n.byContent = map[Frame]int32{}, map[string]int32{}
		n.byPlace, n.began = recent.New[place, int32](maxStacks), time.Now()
	}
	if i, ok := n.byPlace.Get(at); ok {
		return i
	}
	return n.number(at, s)
}

func (n *Numbers) number(at place, s Stack) int32 {
	frames := make([]int32, len(s))
	n.content = n.content[:0]
	for i, f := range s {
		frames[i] = n.frame(f)
		n.content = binary.NativeEndian.AppendUint32(n.content, uint32(frames[i]))
	}
	i, ok := n.byContent[string(n.content)]
	if !ok {
		i = int32(len(n.stacks))
		n.stacks = append(n.stacks, frames)
		n.byContent[string(n.content)] = i
	}
	n.byPlace.Put(at, i)
	return i
}

func (n *Numbers) frame(f Frame) int32 {
	i, ok := n.byFrame[f]
	if !ok {
		i = int32(len(n.frames))
		n.frames = append(n.frames, f)
		n.byFrame[f] = i
	}
	return i
}

// Frames are the numbers of a stack's frames, leaf first. They are not to be changed.
func (n *Numbers) Frames(stack int32) []int32 { return n.stacks[stack] }

// Frame is that of a number.
func (n *Numbers) Frame(frame int32) Frame { return n.frames[frame] }
