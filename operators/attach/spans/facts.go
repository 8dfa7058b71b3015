// SPDX-License-Identifier: Apache-2.0

package spans

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
)

const (
	// Attributes is how many attributes of a span are read.
	Attributes = 2 // SPAN_ATTRIBUTES of bpf/process/span.h
	// valueBytes is how long a value may be; of longer ones the beginning is known.
	valueBytes = 64 // SPAN_VALUE_BYTES, with a NUL
	// noKey in Source.Keys is no attribute.
	noKey = 255 // SPAN_NO_KEY

	// TraceID is an attribute that every span has.
	TraceID = "trace_id"

	// forgetFacts is after how long without rows a span is forgotten: rows are read once a second.
	forgetFacts = 30 * time.Second

	variable = "gpu_gadgets.spans"
)

// FactsKey is struct span_facts_key of bpf/process/span.h.
type FactsKey struct{ Process, Span uint64 }

// FactsValue is struct span_facts of the same.
type FactsValue struct {
	TraceID [16]byte
	Values  [Attributes][valueBytes]byte
}

// Facts are the traces and attributes of the spans of a run. It is safe for concurrent use.
type Facts struct {
	mu     sync.Mutex
	wanted []string
	m      *ebpf.Map // nil before Start
	spans  map[FactsKey]*fact
	swept  time.Time
}

type fact struct {
	trace  string
	values [Attributes]string
	known  bool
	used   time.Time
}

// Of returns the facts of a run; nil without --spans.
func Of(gc operators.GadgetContext) *Facts {
	v, _ := gc.GetVar(variable)
	f, _ := v.(*Facts)
	return f
}

// Want requests attributes. It must be called before Start.
func (f *Facts) Want(attributes []string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, name := range attributes {
		if name != TraceID && !slices.Contains(f.wanted, name) {
			f.wanted = append(f.wanted, name)
		}
	}
	if len(f.wanted) > Attributes {
		return fmt.Errorf("%d attributes of spans: at most %d besides %s", len(f.wanted), Attributes, TraceID)
	}
	return nil
}

func (f *Facts) attributes() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.wanted
}

// Attribute returns an attribute of a span, "" if it is unknown: the process did not publish
// it when the span's first row was made.
func (f *Facts) Attribute(process, span uint64, name string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	known := f.of(process, span)
	if known == nil {
		return ""
	}
	if name == TraceID {
		return known.trace
	}
	if i := slices.Index(f.wanted, name); i >= 0 {
		return known.values[i]
	}
	return ""
}

func (f *Facts) of(process, span uint64) *fact {
	if span == 0 || f.m == nil {
		return nil
	}
	now := time.Now()
	f.sweep(now)
	key := FactsKey{process, span}
	found := f.spans[key]
	if found == nil {
		found = &fact{}
		f.spans[key] = found
	}
	found.used = now
	if !found.known {
		var value FactsValue
		if f.m.Lookup(&key, &value) != nil || value.TraceID == [16]byte{} { // it is written last
			return found
		}
		found.known = true
		found.trace = hex.EncodeToString(value.TraceID[:])
		for i, v := range value.Values {
			text, _, _ := bytes.Cut(v[:], []byte{0})
			found.values[i] = string(text)
		}
	}
	return found
}

func (f *Facts) sweep(now time.Time) {
	if now.Sub(f.swept) < forgetFacts {
		return
	}
	f.swept = now
	for key, known := range f.spans {
		if now.Sub(known.used) >= forgetFacts {
			delete(f.spans, key)
		}
	}
}

// ParseSpan returns the number of a span as rows have it, 0 for none.
func ParseSpan(text string) uint64 {
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64(b)
}
