// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"sync"

	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
)

// maxTexts bounds what Texts keeps: at most about 100 MB of stacks of 40 frames.
const maxTexts = 64 << 10

// Texts reads stacks, each once: many rows have the same one, the pods of a
// deployment most of all, and encoders know stacks by where they are. The zero value
// is ready and safe for concurrent use.
type Texts struct {
	mu     sync.Mutex
	stacks map[string]stack.Stack
}

func (t *Texts) parse(text string) stack.Stack {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s, ok := t.stacks[text]; ok {
		return s
	}
	if t.stacks == nil || len(t.stacks) >= maxTexts {
		t.stacks = map[string]stack.Stack{}
	}
	s := stack.ParseFolded(text)
	t.stacks[text] = s
	return s
}
