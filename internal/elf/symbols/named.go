// SPDX-License-Identifier: Apache-2.0

package symbols

import (
	"strings"
	"unsafe"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
	"github.com/gpu-gadgets/gpu-gadgets/internal/throttle"
)

const (
	// namedBytes bounds the memory for the stacks of a run that have all frames; the last quarter is for tenants with less
	// than a quarter. A table full of ordinary stacks (MAX_STACKS, of 90 frames) takes 200 MiB.
	namedBytes = 256 << 20
	// cutBytes is about half of what a stack takes at most that is cut because its tenant has no more room: all of a full table
	// 128 MiB.
	cutBytes = 4 << 10
	// sharedText is how long a function or a file may be that is not counted: stacks share them.
	sharedText = 256
	frameBytes = int(unsafe.Sizeof(stack.Frame{}))
)

// Named is a stack with the texts that tables show, made once.
type Named struct {
	Stack stack.Stack
	// Version differs from that of the same stack with other names: who keeps the stack of a row reads
	// it again where the version is another one.
	Version uint64
	// Frame and UserFrame are the labels of Stack.Self and Stack.User, Where is Stack.Where
	// and Folded Stack.Folded.
	Frame, UserFrame, Where, Folded string
}

func name(s stack.Stack) *Named {
	return &Named{Stack: s, Frame: s.Self().Label(), UserFrame: s.User().Label(), Where: s.Where(), Folded: s.Folded()}
}

// bytes is about the memory that it takes.
func (n *Named) bytes() int {
	sum := len(n.Frame) + len(n.UserFrame) + len(n.Where) + len(n.Folded)
	for _, f := range n.Stack {
		sum += textBytes(f)
	}
	return sum + cap(n.Stack)*frameBytes
}

// textBytes is the memory for long names of a frame.
func textBytes(f stack.Frame) int {
	return max(0, len(f.Function)-sharedText) + max(0, len(f.File)-sharedText)
}

// room is the memory that the stacks of a run take.
type room struct {
	most  int // namedBytes
	bytes int
	of    map[procmaps.Tenant]int
	// full are the tenants that had no room for a stack, since some has become free: to name it takes milliseconds.
	full map[procmaps.Tenant]bool
}

func newRoom() room {
	return room{most: namedBytes, of: map[procmaps.Tenant]int{}, full: map[procmaps.Tenant]bool{}}
}

func (r *room) has(tenant procmaps.Tenant, bytes int) bool {
	return throttle.HasRoom(r.bytes+bytes, r.most, func() int { return r.of[tenant] + bytes })
}

// take counts memory, or with a negative number what has become free.
func (r *room) take(tenant procmaps.Tenant, bytes int) {
	r.bytes += bytes
	if r.of[tenant] += bytes; r.of[tenant] == 0 {
		delete(r.of, tenant)
	}
	if bytes < 0 {
		clear(r.full)
	}
}

// name names a stack of a tenant, and returns what it is to take; if there is no room for it, its innermost frames, which
// take 0.
func (r *room) name(tenant procmaps.Tenant, s stack.Stack) (n *Named, bytes int) {
	if !r.full[tenant] {
		n = name(s)
		if bytes = n.bytes(); r.has(tenant, bytes) {
			return n, bytes
		}
		r.full[tenant] = true
	}
	return name(cut(s)), 0
}

// cut returns as many of the innermost frames as cutBytes have room for, one at least; [truncated] stands for the others, as
// where the kernel had no room.
func cut(s stack.Stack) stack.Stack {
	out, sum := stack.Stack{}, 0
	for _, f := range s {
		f.Function, f.File = tail(f.Function), tail(f.File)
		if sum += 2*frameBytes + len(f.Function) + len(f.File); sum > cutBytes && len(out) > 0 {
			return append(out, stack.Frame{Kind: stack.KindUnknown, Function: stack.Truncated})
		}
		out = append(out, f)
	}
	return out
}

// tail is the end of a long text, which says more than its beginning.
func tail(text string) string {
	if len(text) <= sharedText {
		return text
	}
	return "…" + strings.ToValidUTF8(text[len(text)-sharedText:], "")
}
