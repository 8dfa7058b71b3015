// SPDX-License-Identifier: Apache-2.0

package kernels

import (
	"encoding/binary"
	"fmt"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/gpu-gadgets/gpu-gadgets/internal/elf/symbols"
	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
)

// Bits of a kernel's number, of bpf/launch/names.h.
const (
	numberNamed = 1 << 63
	numberStub  = 1 << 62
	numberBits  = numberStub - 1
)

// Layout of struct kernel_name.
const (
	nameLength = 0
	nameCut    = 4
	nameText   = 8
)

const (
	// maxNames is twice what the kernel has room for; what is dropped is read again.
	maxNames = 32 << 10
	// maxShown is where a name that was demangled ends: templates grow by it.
	maxShown = 1024
	ellipsis = "…"
)

// Symbols names addresses of a process; *symbols.Resolver does.
type Symbols interface {
	Frame(process uint64, pid uint32, address uint64, leaf bool) stack.Frame
	Variable(process uint64, pid uint32, address uint64) (string, bool)
}

// Names gives kernels their names, each once. It is safe for concurrent use.
type Names struct {
	// lookup is the value of names_by_function; false: there is none.
	lookup  func(function uint64) ([]byte, bool)
	symbols Symbols

	mu    sync.Mutex
	known map[key]string
}

// key: a number that is no name's means something in its process only.
type key struct{ process, function uint64 }

func newNames(lookup func(uint64) ([]byte, bool), s Symbols) *Names {
	return &Names{lookup: lookup, symbols: s, known: map[key]string{}}
}

// Name of a kernel: demangled, without what a terminal would act on; `[kernel 0x…]`
// where only its handle is known, "" for 0. isHost: the number is that of a function of
// the program and not of a kernel.
func (n *Names) Name(process uint64, pid uint32, function uint64, isHost bool) string {
	if function == 0 {
		return ""
	}
	k := key{process, function}
	if function&numberNamed != 0 {
		k.process = 0
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if name, ok := n.known[k]; ok {
		return name
	}
	name, isKnown := n.find(process, pid, function, isHost)
	if isKnown { // others may be learned later
		if len(n.known) >= maxNames {
			clear(n.known)
		}
		n.known[k] = name
	}
	return name
}

func (n *Names) find(process uint64, pid uint32, function uint64, isHost bool) (string, bool) {
	what := "kernel"
	if isHost {
		what = "function"
	}
	switch {
	case function&numberNamed != 0:
		if value, ok := n.lookup(function); ok && len(value) >= nameText {
			return decode(value), true
		}
		return fmt.Sprintf("[kernel #%x]", function&^numberNamed), false
	case function&numberStub != 0:
		address := function & numberBits
		if f := n.symbols.Frame(process, pid, address, true); !strings.HasPrefix(f.Function, "0x") {
			return show(stubbed(f.Function)), true
		}
		// The handle of a kernel of HIP is a variable of the kernel's name.
		if name, ok := n.symbols.Variable(process, pid, address); ok {
			return show(name), true
		}
		return fmt.Sprintf("[%s %#x]", what, address), false
	default:
		return fmt.Sprintf("[%s %#x]", what, function), false
	}
}

// decode reads struct kernel_name.
func decode(value []byte) string {
	length := int(binary.NativeEndian.Uint32(value[nameLength:]))
	text := string(value[nameText:min(nameText+length, len(value))])
	if binary.NativeEndian.Uint32(value[nameCut:]) != 0 {
		return show(text) + ellipsis // what is mangled and cut cannot be demangled
	}
	return show(symbols.Demangle(text))
}

// stubbed returns the kernel that a host function launches: nvcc calls the function
// that a program names as the kernel itself, and what that calls __device_stub__ and the kernel's
// mangled name; clang calls it as the kernel, in the same namespace, with that prefix.
func stubbed(function string) string {
	before, kernel, ok := strings.Cut(function, "__device_stub__")
	if !ok {
		return function
	}
	name, _, _ := strings.Cut(kernel, "(")
	if isMangled(name) { // the stub's own prefix has taken its underscore
		return symbols.Demangle("_" + name)
	}
	return before + kernel
}

// isMangled: a name of C++ without its underscore, of a function in a namespace or in none.
func isMangled(name string) bool {
	return len(name) > 1 && name[0] == 'Z' && strings.IndexByte("0123456789NL", name[1]) >= 0
}

// show escapes bytes that are not UTF-8 or not printable, and cuts a name that is too long.
func show(name string) string {
	var b strings.Builder
	for i := 0; i < len(name); {
		if b.Len() >= maxShown {
			b.WriteString(ellipsis)
			break
		}
		r, size := utf8.DecodeRuneInString(name[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, name[i])
		case !unicode.IsPrint(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteString(name[i : i+size])
		}
		i += size
	}
	return b.String()
}
