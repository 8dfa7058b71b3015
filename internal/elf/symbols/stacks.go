// SPDX-License-Identifier: Apache-2.0

package symbols

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
	"github.com/gpu-gadgets/gpu-gadgets/internal/stack/library"
	"github.com/gpu-gadgets/gpu-gadgets/internal/stack/recent"
	"github.com/gpu-gadgets/gpu-gadgets/internal/throttle"
)

// Maps is how stacks read what the kernel recorded: a false means that there
// is no such entry, or none that could be read.
type Maps interface {
	// Stack is the value of stacks_by_id.
	Stack(id uint64) ([]byte, bool)
	// Symbol is the value of symbols_by_id.
	Symbol(id uint64) ([]byte, bool)
	// Runtime is the address of _PyRuntime in a process.
	Runtime(process uint64) (uint64, bool)
}

const (
	// Twice MAX_STACKS and MAX_SYMBOLS of bpf/stack/stack.h would be what a full
	// map needs; what is dropped is read again.
	namedStacks       = 16 << 10
	namedSymbols      = 32 << 10
	knownInterpreters = 1 << 10
)

// A row is read each second. A stack with frames that may have names later, because its tenant's allowance is spent or
// a file system does not answer, is named again at most every lookAgain, and a tenant's take a fiftieth of the time.
const (
	lookAgain = 5 * time.Second
	lookBurst = 100 * time.Millisecond
	lookShare = 50
	// frameCost is an upper bound of the time to look up a frame, on a machine at 2.5 GHz.
	frameCost = 3 * time.Microsecond
)

// Stacks names the stacks of one gadget run, each once: a row of the same stack
// comes again at every interval. It is safe for concurrent use.
type Stacks struct {
	resolver  *Resolver
	maps      Maps
	libraries library.Paths
	unknown   *Named
	before    *Named

	mu           sync.Mutex
	stacks       *recent.Cache[stackKey, *entry]
	symbols      *recent.Cache[uint64, symbol]
	interpreters *recent.Cache[uint64, interpreter]
	looked       throttle.Allowances[procmaps.Tenant]
	room         room
	versions     uint64 // of stacks so far
	cut          atomic.Uint64
}

// entry is a stack as far as it has names.
type entry struct {
	*Named
	tenant       procmaps.Tenant
	bytes        int       // that are taken of the room
	isCut        bool      // there was not enough
	first, again time.Time // when it was named, and when to do so again; again zero: it is final
}

type stackKey struct {
	process, id uint64
}

// symbol is a code object, and whether it is a library's.
type symbol struct {
	stack.Symbol
	isLibrary bool
}

type interpreter struct {
	runtime  uint64
	contains func(address uint64) bool
}

// NewStacks names what is in maps. Frames of libraries are marked.
func NewStacks(r *Resolver, maps Maps, libraries library.Paths) *Stacks {
	s := &Stacks{
		resolver:     r,
		maps:         maps,
		libraries:    libraries,
		unknown:      name(stack.UnknownStack()),
		before:       name(stack.BeforeAttachStack()),
		stacks:       recent.New[stackKey, *entry](namedStacks),
		symbols:      recent.New[uint64, symbol](namedSymbols),
		interpreters: recent.New[uint64, interpreter](knownInterpreters),
		looked:       throttle.Allowances[procmaps.Tenant]{Burst: lookBurst, Share: lookShare},
		room:         newRoom(),
	}
	s.stacks.OnDrop(func(e *entry) { s.room.take(e.tenant, -e.bytes) })
	return s
}

// Libraries decides which files count as a library.
func (s *Stacks) Libraries() library.Paths { return s.libraries }

// Cut is how many stacks had no room: they have their innermost frames, and [truncated].
func (s *Stacks) Cut() uint64 { return s.cut.Load() }

// Stack is the named stack of an id. Id 0, and an id that is in no map, are
// the stack of one [unknown] frame; stack.BeforeAttachID is that of one [before attach]. The result is shared: do not change it.
func (s *Stacks) Stack(process uint64, pid uint32, id uint64) *Named {
	switch id {
	case 0:
		return s.unknown
	case stack.BeforeAttachID:
		return s.before
	}
	k := stackKey{process, id}
	s.mu.Lock()
	defer s.mu.Unlock()
	known, ok := s.stacks.Get(k)
	if ok && !s.mayLookAgain(known, pid) {
		return known.Named
	}
	if !ok {
		known = &entry{Named: s.unknown, first: s.resolver.now(), tenant: s.resolver.mappings.Tenant(pid)}
	}
	b, ok := s.maps.Stack(id)
	if !ok {
		return known.Named
	}
	raw, err := stack.DecodeStack(b)
	if err != nil {
		return known.Named
	}
	s.look(known, process, pid, raw)
	s.stacks.Put(k, known)
	return known.Named
}

// mayLookAgain reports whether it is time to name a stack again, and counts that.
func (s *Stacks) mayLookAgain(e *entry, pid uint32) bool {
	if e.again.IsZero() {
		return false
	}
	now := s.resolver.now()
	if now.Before(e.again) {
		return false
	}
	tenant := s.resolver.mappings.Tenant(pid)
	pause := s.looked.Pause(tenant, now)
	e.again = now.Add(max(pause, lookAgain))
	if pause > 0 {
		return false
	}
	s.looked.ForgetPaid(now)
	s.looked.Take(tenant, time.Duration(len(e.Stack))*frameCost, now)
	return true
}

// look names a stack.
func (s *Stacks) look(e *entry, process uint64, pid uint32, raw stack.Raw) {
	joined, isFinal := s.join(process, pid, raw, e.first)
	e.again = time.Time{}
	if !isFinal {
		e.again = s.resolver.now().Add(lookAgain)
	}
	if slices.Equal(joined, e.Stack) {
		return // who keeps something by stack keeps it
	}
	s.room.take(e.tenant, -e.bytes)
	n, bytes := s.room.name(e.tenant, joined)
	e.bytes = bytes
	s.room.take(e.tenant, bytes)
	isCut := !slices.Equal(n.Stack, joined)
	if isCut && !e.isCut {
		s.cut.Add(1)
	}
	if e.isCut = isCut; !slices.Equal(n.Stack, e.Stack) {
		s.versions++
		n.Version = s.versions
		e.Named = n
	}
}

func (s *Stacks) join(process uint64, pid uint32, raw stack.Raw, first time.Time) (joined stack.Stack, isFinal bool) {
	parts := stack.Parts{Flags: raw.Flags, Runs: raw.Runs}
	isFinal = true
	for i, address := range raw.Native {
		f, isFinalFrame := s.resolver.frame(process, pid, address, raw.IsLeaf(i), first)
		parts.Native = append(parts.Native, f)
		isFinal = isFinal && isFinalFrame
	}
	for _, p := range raw.Python {
		if p.Asked {
			parts.Python = append(parts.Python, stack.Asker())
		}
		symbol := s.symbol(p.Symbol)
		parts.Python = append(parts.Python, stack.Frame{
			Kind: stack.KindPython, Function: symbol.Function, File: symbol.File, Line: p.Line, Library: symbol.isLibrary,
		})
	}
	s.libraries.MarkByCaller(parts.Python)
	if len(raw.Native) > 0 && len(raw.Python) > 0 {
		contains, isFinalInterpreter := s.interpreter(process, pid, first)
		isFinal = isFinal && isFinalInterpreter
		parts.IsInterpreter = func(i int) bool { return contains(raw.Native[i]) }
	}
	return stack.Join(parts), isFinal
}

func (s *Stacks) symbol(id uint64) symbol {
	unreadable := symbol{Symbol: stack.Symbol{Function: stack.Unreadable}}
	if id == 0 {
		return unreadable
	}
	if known, ok := s.symbols.Get(id); ok {
		return known
	}
	b, ok := s.maps.Symbol(id)
	if !ok {
		return unreadable
	}
	decoded, err := stack.DecodeSymbol(b)
	if err != nil {
		return unreadable
	}
	found := symbol{decoded, s.libraries.Has(decoded.File)}
	s.symbols.Put(id, found)
	return found
}

func (s *Stacks) interpreter(process uint64, pid uint32, since time.Time) (contains func(uint64) bool, isFinal bool) {
	runtime, _ := s.maps.Runtime(process)
	if i, ok := s.interpreters.Get(process); ok && i.runtime == runtime {
		return i.contains, true
	}
	contains, isFinal = s.resolver.Interpreter(pid, runtime, since)
	if isFinal {
		s.interpreters.Put(process, interpreter{runtime, contains})
	}
	return contains, isFinal
}
