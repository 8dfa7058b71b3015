// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"sync"
	"unsafe"

	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
)

const (
	// maxTexts bounds what Texts keeps: at most about 300 MB of stacks of 40 frames.
	maxTexts = 64 << 10
	// maxTextBytes is for longer ones, which a daemon may make up.
	maxTextBytes = 320 << 20
	// maxText is for one stack that is kept.
	maxText = maxTextBytes / 64
)

// Texts reads stacks, each once: many rows have the same one, the pods of a
// deployment most of all, and encoders know stacks by where they are. The zero value
// is ready and safe for concurrent use.
type Texts struct {
	mu     sync.Mutex
	stacks map[string]parsed
	bytes  int // of stacks
}

// parsed is a stack, and what it takes with its text, in bytes.
type parsed struct {
	stack stack.Stack
	bytes int
}

func (t *Texts) parse(text string) parsed {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p, ok := t.stacks[text]; ok {
		return p
	}
	p := parsed{stack: stack.ParseFolded(text)}
	p.bytes = len(text) + len(p.stack)*int(unsafe.Sizeof(stack.Frame{}))
	if p.bytes > maxText {
		return p
	}
	if t.stacks == nil || len(t.stacks) >= maxTexts || t.bytes+p.bytes > maxTextBytes {
		t.stacks, t.bytes = map[string]parsed{}, 0
	}
	t.stacks[text] = p
	t.bytes += p.bytes
	return p
}
