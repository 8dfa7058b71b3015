// SPDX-License-Identifier: Apache-2.0

package spans

import (
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/memory"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
)

// A process publishes which numbers its threads' records use for which attributes, in its
// process context: OpenTelemetry's OTEP 4719.
const (
	contextSignature = "OTEL_CTX"
	contextVersion   = 2
	contextHeader    = 32
	// maxContext bounds what is read of a process's context.
	maxContext = 64 << 10
	// contextTries is how often a context is read that changes meanwhile.
	contextTries = 3

	keyMap = "threadlocal.attribute_key_map"
)

// keys are the numbers of the wanted attributes in a process.
func (f *Follower) keys(pid uint32, context procmaps.Mapping) (keys [4]uint8, keyless bool) {
	keys = noKeys
	if len(f.cfg.Attributes) == 0 {
		return keys, false
	}
	var names []string
	if context.Start != 0 {
		names = readKeys(f.cfg.ProcFS, pid, context)
	}
	for i, wanted := range f.cfg.Attributes {
		if n := slices.Index(names, wanted); n >= 0 && n < noKey && i < Attributes {
			keys[i] = uint8(n)
		} else {
			keyless = true
		}
	}
	return keys, keyless
}

// isContext: a mapping has the name that the OTEP prescribes.
func isContext(m procmaps.Mapping) bool {
	for _, name := range []string{"[anon_shmem:OTEL_CTX]", "[anon:OTEL_CTX]", "/memfd:OTEL_CTX"} {
		if strings.HasPrefix(m.Path, name) {
			return true
		}
	}
	return false
}

// readKeys returns the attributes' names by their numbers; none if the process has not
// published any, or is just changing them.
func readKeys(procfs string, pid uint32, m procmaps.Mapping) []string {
	reader, err := memory.Open(procfs, pid)
	if err != nil {
		return nil
	}
	defer reader.Close()
	for range contextTries {
		payload, changed, err := readContext(reader, m.Start)
		if err != nil {
			return nil
		}
		if !changed {
			return parseKeys(payload)
		}
	}
	return nil
}

// readContext returns the payload of the context at an address. changed: it was being written.
func readContext(from io.ReaderAt, at uint64) (payload []byte, changed bool, err error) {
	header := func() (published, size, payload uint64, err error) {
		var b [contextHeader]byte
		if _, err := from.ReadAt(b[:], int64(at)); err != nil {
			return 0, 0, 0, fmt.Errorf("read the context: %w", err)
		}
		size = uint64(binary.NativeEndian.Uint32(b[12:]))
		if string(b[:8]) != contextSignature || binary.NativeEndian.Uint32(b[8:]) != contextVersion || size > maxContext {
			return 0, 0, 0, fmt.Errorf("not a context of version %d", contextVersion)
		}
		return binary.NativeEndian.Uint64(b[16:]), size, binary.NativeEndian.Uint64(b[24:]), nil
	}
	published, size, where, err := header()
	if err != nil {
		return nil, false, err
	}
	payload = make([]byte, size)
	if _, err := from.ReadAt(payload, int64(where)); err != nil {
		return nil, false, fmt.Errorf("read the context's payload: %w", err)
	}
	again, _, _, err := header()
	return payload, published == 0 || again != published, err
}

// parseKeys finds the list of names in a payload: of the message ProcessContext, or of a
// Resource, as publishers of earlier drafts write it. What is malformed has none.
func parseKeys(payload []byte) (keys []string) {
	each(payload, func(field protowire.Number, message []byte) {
		if found := keysOf(message); found != nil {
			keys = found
		}
		if field == 1 { // a Resource, whose attributes are KeyValues
			each(message, func(_ protowire.Number, attribute []byte) {
				if found := keysOf(attribute); found != nil {
					keys = found
				}
			})
		}
	})
	return keys
}

// keysOf returns the strings of a KeyValue, if it is the list of names.
func keysOf(keyValue []byte) (keys []string) {
	is := false
	each(keyValue, func(field protowire.Number, b []byte) {
		switch {
		case field == 1:
			is = string(b) == keyMap
		case field == 2 && is:
			keys = []string{}
			each(b, func(field protowire.Number, array []byte) {
				if field != 5 { // AnyValue.array_value
					return
				}
				each(array, func(_ protowire.Number, value []byte) {
					name := ""
					each(value, func(field protowire.Number, text []byte) {
						if field == 1 { // AnyValue.string_value
							name = string(text)
						}
					})
					keys = append(keys, name)
				})
			})
		}
	})
	return keys
}

// each calls f for the fields of a message that have a length, until one is malformed.
func each(message []byte, f func(protowire.Number, []byte)) {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return
		}
		message = message[n:]
		if kind != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(number, kind, message); n < 0 {
				return
			}
			message = message[n:]
			continue
		}
		b, n := protowire.ConsumeBytes(message)
		if n < 0 {
			return
		}
		message = message[n:]
		f(number, b)
	}
}
